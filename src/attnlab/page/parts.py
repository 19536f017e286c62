"""What pages are made of; the templates know how each part looks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from attnlab.page.plot import Spec
from attnlab.page.tables import Cell as Cell
from attnlab.page.tables import Table as Table
from attnlab.page.tables import number_cell as number_cell

Tone = Literal["good", "neutral", "warn", "bad"]


@dataclass(frozen=True)
class Chip:
    """A fact in a few words beside the verdict."""

    text: str
    tone: Tone = "neutral"
    detail: str = ""


@dataclass(frozen=True)
class Figure:
    """A picture. On narrow screens `wide` ones scroll sideways in their frame; others whose width
    is a number are drawn a second time, narrower."""

    spec: Spec
    caption: str = ""
    wide: bool = False
    kind: str = field(default="figure", init=False)


@dataclass(frozen=True)
class Row:
    """Pictures side by side, as many as fit."""

    figures: Sequence[Figure]
    kind: str = field(default="row", init=False)


@dataclass(frozen=True)
class Thumbnail:
    """A picture of pixels, inside the page."""

    uri: str
    text: str
    """What it is, for those who do not see it."""
    width: int
    height: int


@dataclass(frozen=True)
class ThumbnailGrid:
    """Pictures of pixels in rows under the heads of their columns."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Thumbnail]]
    kind: str = field(default="grid", init=False)


@dataclass(frozen=True)
class Legend:
    """Colours and shapes, in words."""

    entries: Sequence[tuple[str, str]]
    """(class of the swatch, text)."""
    kind: str = field(default="legend", init=False)


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str
    quiet: bool = False
    kind: str = field(default="text", init=False)


@dataclass(frozen=True)
class Heading:
    """What the parts below it are, inside a section."""

    text: str
    kind: str = field(default="heading", init=False)


@dataclass(frozen=True)
class Notes:
    """A list of remarks."""

    items: Sequence[Chip]
    kind: str = field(default="notes", init=False)


@dataclass(frozen=True)
class Code:
    """Text to copy."""

    text: str
    title: str = ""
    kind: str = field(default="code", init=False)


@dataclass(frozen=True)
class Download:
    """A file inside the page."""

    name: str
    content: str
    kind: str = field(default="download", init=False)


@dataclass(frozen=True)
class Words:
    """Words and what they mean."""

    entries: Sequence[tuple[str, str, str]]
    """(word, one sentence, the page and heading of the documentation that has more)."""
    kind: str = field(default="words", init=False)


Part = (
    Figure | Row | ThumbnailGrid | Legend | Table | Text | Heading | Notes | Code | Download | Words
)


@dataclass(frozen=True)
class Folded:
    """Parts that a click on one line opens."""

    title: str
    parts: Sequence[Part]
    kind: str = field(default="folded", init=False)


@dataclass(frozen=True)
class Section:
    """A question and what answers it."""

    title: str
    lead: str
    """How to read what follows."""
    parts: Sequence[Part | Folded]
    answer: str = ""
    """In one sentence, for a person who has not read the papers."""
    to_do: str = ""
    """What follows from it."""


@dataclass(frozen=True)
class Page:
    """A whole page, from its title to its notes."""

    title: str
    verdict: str
    """`**bold**` marks what is set off."""
    chips: Sequence[Chip]
    sections: Sequence[Section]
    subtitle: str = ""
    notes: Sequence[Chip] = ()
    """What belongs beside the verdict."""
    findings: Sequence[str] = ()
    """The numbers behind the verdict, one line each."""
    running: bool = False
    """Whether it will change by itself, so that who serves it lets it refresh."""
