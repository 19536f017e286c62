"""A proposed placement: one object that prints, plots, and goes to JSON and back."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from attnlab._errors import InputError
from attnlab._files import write_whole
from attnlab.instruments.place.figures import margin_in_words, place_figure
from attnlab.page.plot import Spec, to_svg
from attnlab.results.provenance import Provenance, read_provenance

FORMAT = "attnlab place 1"


@dataclass(frozen=True)
class BlockScore:
    """A block, whether it was chosen, and why."""

    label: str
    stage: int
    name: str
    chosen: bool
    score: float | None
    reason: str
    """In one line; of a block that could not be chosen, why not."""


@dataclass(frozen=True)
class Margin:
    """How far the last block that was chosen is from the first that was not."""

    stage: int | None
    """None where all stages were chosen from together."""
    chosen: str
    following: str
    score: float
    following_score: float
    margin: float


@dataclass(frozen=True)
class Placement:
    """Where to put gates, and why."""

    network: str
    strategy: str
    what: str
    """The strategy in one line."""
    where: str
    """For `attnlab.insert`."""
    budget: int
    """Blocks; in every stage, with `per_stage`."""
    per_stage: bool
    quantity: str
    """What the scores are."""
    images: int
    blocks: tuple[BlockScore, ...]
    margins: tuple[Margin, ...]
    seconds: float
    notes: tuple[str, ...] = field(default=())
    provenance: Provenance | None = None
    """Where it comes from, if a command made it."""

    @property
    def chosen(self) -> tuple[BlockScore, ...]:
        return tuple(block for block in self.blocks if block.chosen)

    def reasons(self) -> list[str]:
        """One line for each block that was chosen, and one for each margin."""
        lines = [f"{b.label} {b.name}: {b.reason}" for b in self.chosen]
        return lines + [f"margin {margin_in_words(asdict(each))}" for each in self.margins]

    def to_json(self) -> str:
        """All of it as JSON text."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Placement:
        """The placement that `to_json` wrote."""
        data = json.loads(text)
        if not isinstance(data, dict) or data.pop("format", None) != FORMAT:
            raise InputError(f"Expected a file written by to_json ({FORMAT!r}) but got another.")
        data["blocks"] = tuple(BlockScore(**each) for each in data["blocks"])
        data["margins"] = tuple(Margin(**each) for each in data["margins"])
        data["notes"] = tuple(data["notes"])
        data["provenance"] = read_provenance(data.get("provenance"))
        return cls(**data)

    def save(self, path: str | Path) -> Path:
        """Write `to_json()` to `path`, whole or not at all."""
        return write_whole(Path(path), self.to_json() + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Placement:
        """Read what `save` wrote."""
        return cls.from_json(Path(path).read_text(encoding="utf-8"))

    def figure(self) -> Spec:
        """Vega-Lite specification: every block with its score, the chosen ones in colour."""
        return place_figure(asdict(self))

    def plot(self) -> str:
        """The figure as SVG text."""
        return to_svg(self.figure())

    def _repr_svg_(self) -> str:
        return self.plot()

    def __str__(self) -> str:
        lines = [f"where={self.where!r}", *(f"  {line}" for line in self.reasons())]
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])
