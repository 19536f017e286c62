"""One figure of a task, described so that tables and pages need to know no task."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field, NonNegativeInt

from attnlab._strict import Strict


class Metric(Strict):
    """A figure: what it is called, and how it is shown."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    """In files: `top1`."""
    label: str
    """For people: `top-1`."""
    unit: str = ""
    """After a value: `%`."""
    scale: float = 1.0
    """What a stored value is multiplied by to be shown."""
    better: Literal["higher", "lower"] = "higher"
    least: float | None = None
    """No stored value is below it; None if that is not known."""
    most: float | None = None
    """No stored value is above it."""
    digits: NonNegativeInt = 2
    """After the point, when shown."""
    sample: str = "image"
    """What a network is given, one of it: `window` of a text."""
    nothing: float | None = None
    """The stored value of a network that has learned nothing, or next to nothing; None where that
    depends on the data."""

    def check_value(self, value: float) -> None:
        """Refuse a stored value that the metric cannot have."""
        if self.least is not None and value < self.least:
            raise ValueError(f"{self.name} is {value:g}, expected at least {self.least:g}")
        if self.most is not None and value > self.most:
            raise ValueError(f"{self.name} is {value:g}, expected at most {self.most:g}")

    @property
    def title(self) -> str:
        """`top-1 %`: the head of a column."""
        return f"{self.label} {self.unit}".strip()

    @property
    def difference_unit(self) -> str:
        """The unit of the difference of two values: points where the values are in percent."""
        return "pt" if self.unit == "%" else self.unit

    def shown(self, value: float) -> float:
        """A stored value in the shown unit."""
        return self.scale * value

    def text(self, value: float) -> str:
        """A stored value with its unit: `96.42 %`."""
        return self.shown_text(self.shown(value))

    def shown_text(self, value: float) -> str:
        """A value that is in the shown unit already, with that unit: `96.42 %`."""
        return f"{value:.{self.digits}f} {self.unit}".strip()

    def signed(self, difference: float) -> str:
        """A difference in the shown unit, which is left out: `+0.40`."""
        return f"{difference:+.{self.digits}f}"

    def difference_text(self, difference: float) -> str:
        """A difference in the shown unit, with that unit: `+0.40 pt`."""
        return f"{self.signed(difference)} {self.difference_unit}".strip()

    def interval_text(self, low: float, high: float) -> str:
        """Write the interval of a difference: `[+0.20, +0.60]`."""
        return f"[{self.signed(low)}, {self.signed(high)}]"

    @property
    def samples(self) -> str:
        """Several of what a network is given: `images`."""
        return f"{self.sample}s"

    @property
    def direction(self) -> str:
        """What is said next to a figure; empty where more is better, as people expect."""
        return "" if self.better == "higher" else "lower is better"

    def best(self, values: list[float]) -> int:
        """The place of the best of some values, the first of equals."""
        chosen = max if self.better == "higher" else min
        return values.index(chosen(values))


def directed(title: str, metric: Metric) -> str | list[str]:
    """The title of an axis; on a second line where lower is better."""
    return [title, metric.direction] if metric.direction else title


_OVERFLOWS = 700
"""Nats: e to more is not a float64."""


def perplexity_of(loss: float) -> float:
    """e to a loss in nats per token; infinite where that overflows."""
    return math.exp(loss) if loss < _OVERFLOWS else math.inf
