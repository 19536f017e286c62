"""How often a network takes which class for which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np

from attnlab.instruments.classes.figures import confusion_figure
from attnlab.page.plot import Spec
from attnlab.page.tables import Cell, Table, number_cell
from attnlab.results.base import Result

SHOWN = 40
"""Classes up to which a matrix is drawn; of more, the pairs that are mixed up most are listed."""


class MixedUp(NamedTuple):
    """Images of one class that are taken for another."""

    true: str
    predicted: str
    share: float
    """The share of the images of the true class that are taken for the other."""
    images: int


@dataclass(frozen=True)
class WrongImage:
    """A test image whose class was predicted wrongly."""

    number: int
    """Among those that were looked at."""
    true: int
    predicted: int
    """Places among the classes."""
    probability: float
    """That the network gave to what it predicted."""
    png: str
    """In base64."""
    width: int
    height: int


@dataclass(frozen=True)
class ClassesResult(Result):
    """The confusion of classes on all test images."""

    FORMAT: ClassVar[str] = "attnlab classes 1"

    network: str
    classes: tuple[str, ...]
    """The names of the classes, in the order of the outputs."""
    confusion: tuple[tuple[int, ...], ...]
    """Images, true class × predicted class."""
    wrong: tuple[WrongImage, ...] = ()
    """The wrong answers of which the network was surest, the surest first."""

    def __post_init__(self) -> None:
        sides = {len(self.confusion), *(len(row) for row in self.confusion)}
        if sides != {len(self.classes)}:
            raise ValueError("expected a number for every pair of classes")

    @property
    def verdict(self) -> str:
        """The class that is known least, and what it is taken for."""
        return self.in_words(self.network)

    def in_words(self, label: str) -> str:
        """The verdict, with another name of the network."""
        known = {n: s for n, s in zip(self.classes, self.shares(), strict=True) if s is not None}
        if not known:
            return "There is no test image."
        worst = min(known, key=known.__getitem__)
        pair = next((each for each in self.mixed_up() if each.true == worst), None)
        taken = ""
        if pair is not None:
            taken = f", most often taken for {pair.predicted} ({100 * pair.share:.0f} %)"
        return f"Of {label}, class {worst} is known least: {100 * known[worst]:.1f} % right{taken}."

    def table(self) -> Table:
        """A row per class: how many images, and the share of them that is predicted right."""
        totals = self.images()
        rows = [
            [Cell(name), number_cell(total, "{}"), share_cell(share)]
            for name, total, share in zip(self.classes, totals, self.shares(), strict=True)
        ]
        return Table(["class", "images", "right %"], rows, f"{self.network}, class by class")

    def figures(self) -> dict[str, Spec]:
        """`confusion`: the matrix, unless there are too many classes to see anything."""
        if len(self.classes) > SHOWN:
            return {}
        return {"confusion": confusion_figure(self.classes, self.confusion)}

    def images(self) -> list[int]:
        """How many images there are of each class."""
        return [sum(row) for row in self.confusion]

    def shares(self) -> list[float | None]:
        """The share of each class that is predicted right; None if there is no image of it."""
        return [
            row[n] / total if total else None
            for n, (row, total) in enumerate(zip(self.confusion, self.images(), strict=True))
        ]

    def mixed_up(self) -> list[MixedUp]:
        """Pairs of classes of which one is taken for the other, the worst first."""
        counts, totals = np.array(self.confusion), self.images()
        pairs = [
            MixedUp(
                self.classes[a], self.classes[b], float(counts[a, b] / totals[a]), int(counts[a, b])
            )
            for a, b in zip(*np.nonzero(counts), strict=True)
            if a != b
        ]
        return sorted(pairs, key=lambda pair: -pair.share)


def all_seeds(found: Sequence[ClassesResult]) -> ClassesResult:
    """The sum over several seeds; of those that have the classes of the first."""
    first = found[0]
    alike = [np.array(each.confusion) for each in found if each.classes == first.classes]
    return replace(first, confusion=tuple(map(tuple, sum(alike[1:], alike[0]).tolist())))


def share_cell(share: float | None) -> Cell:
    """A share in percent; a dash if there is none."""
    return Cell("—") if share is None else Cell(f"{100 * share:.1f}", order=share)
