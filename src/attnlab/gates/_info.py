"""What the registry knows about a gate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from torch import nn

from attnlab.gates._gate import Gate

Form = Literal["branch", "step", "stage", "norm"]


@dataclass(frozen=True)
class Reference:
    """A paper, as a bibliography wants it."""

    kind: Literal["inproceedings", "article"]
    key: str
    authors: str
    title: str
    venue: str
    """The conference or the journal."""
    year: int

    def bibtex(self) -> str:
        """The entry for a BibTeX file."""
        where = "booktitle" if self.kind == "inproceedings" else "journal"
        # Two pairs of braces keep the capitals of the title.
        return (
            f"@{self.kind}{{{self.key},\n  author = {{{self.authors}}},\n"
            f"  title = {{{{{self.title}}}}},\n"
            f"  {where} = {{{self.venue}}}, year = {{{self.year}}}\n}}"
        )


@dataclass(frozen=True)
class GateInfo:
    """One row of `attnlab modules`."""

    name: str
    build: type[nn.Module]
    form: Form
    title: str
    paper: str
    not_on_vector: str = ""
    """Why ASR cannot feed it a learned vector; empty if it can."""
    vector_options: Mapping[str, object] = field(default_factory=dict)
    """Options that ASR fixes, since the vector leaves no choice."""
    reference: Reference | None = None
    """The paper for a bibliography; every registered gate has one."""

    @property
    def on_vector(self) -> bool:
        """Whether "asr:name" exists."""
        return issubclass(self.build, Gate) and self.build.on_vector
