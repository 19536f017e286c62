"""What it costs to make gates constant, one after the other: predicted, and measured elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from attnlab.surgery.words import TOTAL_CHANGE

WORDS = {
    "output": TOTAL_CHANGE,
    "answers": "share of answers that change",
    "loss": "rise of the loss",
    "accuracy": "fall of the accuracy",
}
"""What each cost is."""


Budget = float | Literal["all"]
"""The largest predicted cost; `all`: whatever it costs."""


@dataclass(frozen=True)
class CurvePoint:
    """One more gate that is constant."""

    site: str
    predicted: float
    """The cost of this gate and all before it, on the images that chose."""
    bound: float
    """The upper end of its one-sided 95 % interval."""
    measured: float
    """The cost on the images held out."""
    accuracy: float | None = None
    """On the images held out, where their classes are known."""
    accuracy_error: float | None = None
    """The standard error of its difference to the network as it was, image by image."""


@dataclass(frozen=True)
class Curve:
    """Cost against the number of gates that are constant, in the order in which they are taken."""

    cost: str
    """Which: one of `output`, `answers`, `loss`, `accuracy`."""
    choosing: int
    """Images that chose the order and made the constants."""
    held_out: int
    """Images that were only measured on."""
    points: tuple[CurvePoint, ...]
    accuracy: float | None = None
    """The accuracy of the network as it was, on the images held out, where their classes are
    known."""
    budget: Budget | None = None
    """What was asked for, if anything was folded."""

    def within(self, budget: Budget) -> int:
        """Return how many gates go if the predicted cost may be `budget` at most."""
        if budget == "all":
            return len(self.points)
        return max((n for n, p in enumerate(self.points, 1) if p.predicted <= budget), default=0)

    def table(self) -> str:
        """Make a table with one line per gate."""
        accuracy = self.accuracy is not None
        share = "  accuracy" if accuracy else ""
        lines = [f"gates  predicted  up to    held out{share}  gate"]
        if self.accuracy is not None:
            lines.append(f"{0:>5}  {0:<9.4f}  {0:<6.4f}  {0:<8.4f}  {self.accuracy:<8.2%}  none")
        for number, point in enumerate(self.points, 1):
            share = "" if point.accuracy is None else f"  {point.accuracy:<8.2%}"
            lines.append(
                f"{number:>5}  {point.predicted:<9.4f}  {point.bound:<6.4f}  "
                f"{point.measured:<8.4f}{share}  {point.site}"
            )
        return "\n".join(lines)

    def __str__(self) -> str:
        title = (
            f"{WORDS[self.cost]}, chosen on {self.choosing} images, held out {self.held_out}: "
            f"{len(self.points)} gates can be constant"
        )
        lines = [title, *(f"  {line}" for line in self.table().splitlines())]
        if self.budget is not None:
            gone = self.within(self.budget)
            lines.append(f"  budget {self.budget}: {gone} of {len(self.points)} go")
        return "\n".join(lines)
