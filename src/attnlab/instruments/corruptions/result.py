"""What a classifier keeps on corrupted images, and how far its confidence can be trusted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from attnlab.page.tables import Cell, Table, number_cell
from attnlab.results.base import Result


@dataclass(frozen=True)
class ClassifierFigures:
    """How good a classifier is on some images."""

    top1: float
    """Share of the images that is predicted right."""
    ece: float
    """Expected calibration error: how far confidence and share of right answers are apart, over 15
    bins of confidence, L1."""
    nll: float
    """Mean negative log-likelihood of the true class."""


@dataclass(frozen=True)
class CorruptedFigures(ClassifierFigures):
    """The figures of a classifier on images with one corruption at one strength."""

    corruption: str
    strength: int


@dataclass(frozen=True)
class CorruptionsResult(Result):
    """Figures of clean images, of every corruption at five strengths, and the mean over those."""

    FORMAT: ClassVar[str] = "attnlab corruptions 1"

    network: str
    images: int
    clean: ClassifierFigures
    mean: ClassifierFigures
    rows: tuple[CorruptedFigures, ...]

    @property
    def verdict(self) -> str:
        """top-1 and ECE of clean and of corrupted images."""
        return (
            f"top-1 {100 * self.clean.top1:.2f} % of clean images and {100 * self.mean.top1:.2f} % "
            f"of corrupted ones; ECE {100 * self.clean.ece:.2f} % and {100 * self.mean.ece:.2f} %."
        )

    def table(self) -> Table:
        """A row for clean images, one for the mean, and one for each corruption and strength."""
        rows = [
            _row("none", "—", self.clean),
            _row("mean", "1 to 5", self.mean),
            *(
                _row(each.corruption.replace("_", " "), str(each.strength), each)
                for each in self.rows
            ),
        ]
        columns = ["corruption", "strength", "top-1 %", "ECE %", "NLL"]
        return Table(columns, rows, f"{self.network} on {self.images} images", names=2)


def _row(name: str, strength: str, found: ClassifierFigures) -> list[Cell]:
    return [
        Cell(name),
        Cell(strength),
        number_cell(100 * found.top1, "{:.2f}"),
        number_cell(100 * found.ece, "{:.2f}"),
        number_cell(found.nll, "{:.3f}"),
    ]
