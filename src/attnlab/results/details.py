"""What a task shows of a finished network beside its metrics, so that a page needs to know no
task: values by name, curves, and pictures with boxes."""

from __future__ import annotations

from attnlab._strict import Strict


class Breakdown(Strict):
    """One figure taken apart, in the shown unit: AP by category."""

    title: str
    unit: str = ""
    digits: int = 2
    values: dict[str, float | None]
    """None where there is nothing to take it of."""


class Curves(Strict):
    """Lines over common places."""

    title: str
    x_title: str
    y_title: str
    x: tuple[float, ...]
    lines: dict[str, tuple[float, ...]]


class Mark(Strict):
    """A box in a picture, in pixels."""

    left: float
    top: float
    right: float
    bottom: float
    text: str


class Picture(Strict):
    """A test image, what is true of it, and what was found."""

    png: str
    """In base64."""
    width: int
    height: int
    true: tuple[Mark, ...]
    found: tuple[Mark, ...]


class Details(Strict):
    """All of it, of one network."""

    breakdowns: tuple[Breakdown, ...] = ()
    curves: tuple[Curves, ...] = ()
    pictures: tuple[Picture, ...] = ()
