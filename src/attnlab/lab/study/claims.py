"""What a study claims beside its grid: a paper's figures, and rows that are as good as another."""

from __future__ import annotations

from pydantic import PositiveFloat

from attnlab._strict import Strict
from attnlab.results.table import PaperFigure


class Paper(Strict):
    """What a paper prints for the rows of a study."""

    source: str
    note: str = ""
    figures: dict[str, dict[str, dict[str, PaperFigure]]] = {}
    """By metric, group and row. In a file each metric is a table of its own:
    `[paper.top1."cifar10 resnet164"]` with `se = "94.26 ± 0.14"`."""


class EquivalenceConfig(Strict):
    """A claim of its own, that rows are as good as another: a missing difference does not show it.
    The difference must lie within a margin that was stated beforehand."""

    to: str
    """The row that the others are compared with."""
    margin: PositiveFloat
    """In the metric's unit: points, for a result in percent."""
