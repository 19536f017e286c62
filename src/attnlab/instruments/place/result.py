"""Where to put gates, and why: what `place` found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from attnlab.instruments.place.figures import place_figure
from attnlab.page.parts import Page
from attnlab.page.plot import Spec
from attnlab.page.tables import Cell, Table, number_cell
from attnlab.results.base import Result

_TIE = 0.05
"""Scores that are nearer to each other than this are a tie: such blocks change places from seed to
seed."""


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
    """None if all stages were chosen from together."""
    chosen: str
    following: str
    score: float
    following_score: float
    margin: float

    @property
    def share(self) -> float:
        """The margin as a share of the score of the block that was chosen."""
        return self.margin / abs(self.score) if self.score else 0.0

    def __str__(self) -> str:
        """`0.006 (1.1 %) from 1.1 to 1.2 in stage 1: nearly a tie`."""
        stage = "" if self.stage is None else f" in stage {self.stage}"
        tie = ": nearly a tie" if self.share < _TIE else ""
        return (
            f"{self.margin:.3g} ({100 * self.share:.1f} %) from {self.chosen} to "
            f"{self.following}{stage}{tie}"
        )


@dataclass(frozen=True)
class Placement(Result):
    """Says where to put gates, and why."""

    FORMAT: ClassVar[str] = "attnlab place 1"

    network: str
    strategy: str
    what: str
    """The strategy in one line."""
    where: str
    """The chosen blocks as `attnlab.insert` takes them."""
    budget: int
    """Blocks; in every stage, with `per_stage`."""
    per_stage: bool
    quantity: str
    """What the scores of the strategy mean, in words."""
    images: int
    blocks: tuple[BlockScore, ...]
    margins: tuple[Margin, ...]

    @property
    def chosen(self) -> tuple[BlockScore, ...]:
        """The blocks that should get a gate."""
        return tuple(block for block in self.blocks if block.chosen)

    @property
    def verdict(self) -> str:
        """The chosen blocks, how to name them to `insert`, and the margin that is the smallest."""
        labels = ", ".join(block.label for block in self.chosen)
        closest = min(self.margins, key=lambda margin: margin.share, default=None)
        smallest = "" if closest is None else f"; smallest margin {closest}"
        return f"Gates at {labels}, where={self.where!r}{smallest}."

    def reasons(self) -> list[str]:
        """One line for each block that was chosen, and one for each margin."""
        lines = [f"{b.label} {b.name}: {b.reason}" for b in self.chosen]
        return lines + [f"margin {each}" for each in self.margins]

    def table(self) -> Table:
        """A row for every block; the last that was chosen has the margin to the next."""
        margins = {
            each.chosen: Cell(f"{100 * each.share:.1f} %", f"to {each.following}", each.share)
            for each in self.margins
        }
        rows = [
            [
                Cell(block.label),
                Cell(block.name),
                Cell("chosen" if block.chosen else ""),
                Cell(block.reason),
                margins.get(block.label, Cell("")),
                number_cell(block.score, "{:.4g}"),
            ]
            for block in self.blocks
        ]
        caption = f"{self.network}: {self.strategy}, {self.what}, {self.images} images"
        columns = ["block", "module", "choice", "why", "margin", self.quantity]
        return Table(columns, rows, caption, names=4)

    def figures(self) -> dict[str, Spec]:
        """Every block with its score, the chosen ones in colour."""
        return {"place": place_figure(self)}

    def page(self) -> Page:
        """The blocks with their reasons, and the line of Python that puts gates there."""
        from attnlab.instruments.place.page import place_page

        return place_page(self)

    def __str__(self) -> str:
        lines = [f"where={self.where!r}", *(f"  {line}" for line in self.reasons())]
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])
