"""What a task shows of a finished network beside its metrics, so that a page needs to know no
task: values by name, curves, and pictures with boxes or masks.

It is a result like those of instruments. It is here because tasks make it, and no task knows an
instrument.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from attnlab.page.tables import Cell, Table, number_cell
from attnlab.results.base import Result


@dataclass(frozen=True, kw_only=True)
class Breakdown:
    """One figure taken apart, in the shown unit: AP by category."""

    title: str
    unit: str = ""
    digits: int = 2
    values: dict[str, float | None]
    """None if there is nothing to take it of."""


@dataclass(frozen=True, kw_only=True)
class Curves:
    """Lines over common places."""

    title: str
    x_title: str
    y_title: str
    x: tuple[float, ...]
    lines: dict[str, tuple[float, ...]]


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A box in a picture, in pixels."""

    left: float
    top: float
    right: float
    bottom: float
    text: str


@dataclass(frozen=True, kw_only=True)
class MarkedPicture:
    """A test image, what is true of it, and what was found."""

    png: str
    """In base64."""
    width: int
    height: int
    true: tuple[Mark, ...]
    found: tuple[Mark, ...]


@dataclass(frozen=True, kw_only=True)
class MaskPicture:
    """A test image beside the class of each of its pixels: PNGs in base64, all of one size."""

    image: str
    true: str
    found: str
    errors: str
    """The image in grey, with the pixels in red whose class was not found."""
    width: int
    height: int
    wrong: float
    """The share of these pixels."""


@dataclass(frozen=True, kw_only=True)
class DetailsResult(Result):
    """All that a task shows of one network."""

    FORMAT: ClassVar[str] = "attnlab details 1"

    breakdowns: tuple[Breakdown, ...] = ()
    curves: tuple[Curves, ...] = ()
    pictures: tuple[MarkedPicture, ...] = ()
    masks: tuple[MaskPicture, ...] = ()

    @property
    def verdict(self) -> str:
        """The largest and the smallest value of each figure that was taken apart."""
        said = []
        for each in self.breakdowns:
            known = {name: value for name, value in each.values.items() if value is not None}
            if known:
                most, least = (pick(known, key=known.__getitem__) for pick in (max, min))
                said.append(
                    f"{each.title}: {least} {known[least]:.{each.digits}f} to {most} "
                    f"{known[most]:.{each.digits}f} {each.unit}".rstrip()
                )
        return f"{'; '.join(said) or 'There is nothing to take apart'}."

    def table(self) -> Table:
        """A row for each part of each figure."""
        rows = [
            [
                Cell(each.title),
                Cell(name),
                number_cell(value, f"{{:.{each.digits}f}}"),
                Cell(each.unit),
            ]
            for each in self.breakdowns
            for name, value in each.values.items()
        ]
        return Table(["figure", "of", "value", "unit"], rows, "In detail", names=2)
