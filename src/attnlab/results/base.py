"""What an instrument found: one base for all results, which prints, plots, and goes to a file and
back."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import BeforeValidator, ConfigDict, TypeAdapter, ValidationError

from attnlab._errors import InputError, unknown_name
from attnlab._files import write_whole
from attnlab._strict import problems_of
from attnlab.page.parts import Figure, Folded, Page, Part, Section
from attnlab.page.plot import Spec, to_svg
from attnlab.page.tables import Table
from attnlab.results.damage import JsonObject
from attnlab.results.origin import notes_section, provenance_chips, provenance_section
from attnlab.results.provenance import Provenance


def _from_null(value: object) -> object:
    return math.nan if value is None else value


Number = Annotated[float, BeforeValidator(_from_null)]
"""A float that may be NaN: JSON has no word for that, so a file holds null."""


def _row_from_null(values: object) -> object:
    if isinstance(values, list | tuple) and None in values:
        return [_from_null(value) for value in values]
    return values


Numbers = Annotated[tuple[float, ...], BeforeValidator(_row_from_null)]
"""A row of floats that may be NaN. Of many numbers it is read much faster than a tuple of `Number`:
one check for the row."""


FORMATS: dict[str, type[Result]] = {}
"""Every kind of result that was imported, by its format."""


@dataclass(frozen=True, kw_only=True)
class Result(ABC):
    """The base of every result.

    A subclass is a frozen dataclass of plain data. Its `FORMAT` stands in the files that it writes,
    and ends in a number that changes when the meaning of a field does.
    """

    FORMAT: ClassVar[str]
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "FORMAT" in vars(cls):
            FORMATS[cls.FORMAT] = cls

    seconds: float = 0.0
    """How long the measurement took."""
    notes: tuple[str, ...] = ()
    """What a reader has to know about the numbers."""
    provenance: Provenance | None = None
    """Where it comes from, if attnlab opened the network itself."""

    @property
    @abstractmethod
    def verdict(self) -> str:
        """What was found, in one sentence."""

    @abstractmethod
    def table(self) -> Table:
        """The figures, a row for each thing that was measured."""

    def slim(self) -> Self:
        """Leave out what only a picture of this one network shows: the rest is what a table or a
        page over thousands of networks needs of each."""
        return self

    def files(self) -> tuple[str, ...]:
        """Pictures that belong to the result and lie beside its file, by their relative names."""
        return ()

    def figures(self) -> dict[str, Spec]:
        """Vega-Lite specifications by name; the first is shown if there is room for one."""
        return {}

    def lead(self) -> str:
        """Return what the figures show, in a sentence or two for the page."""
        return ""

    def plot(self, figure: str | None = None) -> str:
        """One of `figures()` as SVG text, the first if none is named."""
        specs = self.figures()
        name = next(iter(specs)) if figure is None else figure
        if name not in specs:
            raise unknown_name("figure", name, specs)
        return to_svg(specs[name])

    def page(self) -> Page:
        """The page of the result: its verdict, figures, table, notes and origin. An instrument
        whose readers need more says it here."""
        figures: list[Part | Folded] = [Figure(spec, wide=True) for spec in self.figures().values()]
        table = self.table()
        sections = [
            *([Section("What does it look like?", self.lead(), figures)] if figures else []),
            Section("All numbers", "", [replace(table, caption="")]),
            notes_section(self.notes),
            provenance_section(self.provenance),
        ]
        subtitle = self.instrument().capitalize()
        return Page(
            table.caption, self.verdict, provenance_chips(self.provenance), sections, subtitle
        )

    def to_json(self, indent: int | None = 1) -> str:
        """Write all of it as JSON text; what is not finite is null. With `indent=None` it is one
        line, which is written ten times as fast."""
        if indent is None:
            fields = _adapter(type(self)).dump_json(self).decode()
            return f'{{"format":{json.dumps(self.FORMAT)},{fields[1:]}'
        content = _adapter(type(self)).dump_python(self, mode="json")
        found = {"format": self.FORMAT, **{name: _finite(each) for name, each in content.items()}}
        return json.dumps(found, indent=indent, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The result that `to_json` wrote."""
        found = json.loads(text)
        if not isinstance(found, dict) or found.pop("format", None) != cls.FORMAT:
            raise InputError(
                f"Expected a file written by to_json ({cls.FORMAT!r}) but got another."
            )
        return cls.from_content(found)

    @classmethod
    def instrument(cls) -> str:
        """The name of the instrument that finds such results: the middle of `FORMAT`."""
        return " ".join(cls.FORMAT.split()[1:-1])

    @classmethod
    def from_content(cls, found: JsonObject) -> Self:
        """The result of the fields that a file holds, without its format."""
        try:
            return cls.validated(found)
        except ValidationError as error:
            problem = problems_of(error)[0]
            raise InputError(
                f"Expected a file of the format {cls.FORMAT!r} but in this one {problem.path}: "
                f"{problem.message}."
            ) from None

    @classmethod
    def validated(cls, found: JsonObject) -> Self:
        """Make a result of `found`, with pydantic's own error if a field is missing or wrong."""
        result = _adapter(cls).validate_python(found)
        assert isinstance(result, cls)
        return result

    def save(self, path: str | Path) -> Path:
        """Write `to_json()` to `path`, whole or not at all."""
        return write_whole(Path(path), self.to_json() + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote."""
        return cls.from_json(Path(path).read_text(encoding="utf-8"))

    def _repr_svg_(self) -> str | None:
        return self.plot() if self.figures() else None


@cache
def _adapter(kind: type[Result]) -> TypeAdapter[Result]:
    # To make one takes milliseconds, and a study's page reads hundreds of results.
    return TypeAdapter(kind)


def _finite(tree: object) -> object:
    if isinstance(tree, dict):
        return {key: _finite(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_finite(value) for value in tree]
    return None if isinstance(tree, float) and not math.isfinite(tree) else tree
