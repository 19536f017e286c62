"""What one step of a trajectory is: one residual addition, or a whole block of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from attnlab._errors import unknown_name
from attnlab.instruments.stiffness.choices import GRANULARITIES, Granularity
from attnlab.residuals import Step


@dataclass(frozen=True)
class Span:
    """Steps that are measured as one: from the shortcut of the first to the state after the
    last. One step, or those of a block (attention and MLP of a transformer's)."""

    steps: tuple[Step, ...]

    @property
    def first(self) -> Step:
        return self.steps[0]

    @property
    def last(self) -> Step:
        return self.steps[-1]


def check_granularity(granularity: str) -> None:
    """Refuse a choice that is none."""
    if granularity not in GRANULARITIES:
        raise unknown_name("granularity", granularity, GRANULARITIES)


def spans(steps: Sequence[Step], granularity: Granularity) -> tuple[Span, ...]:
    """`steps` one by one, or by block, in the order of execution."""
    check_granularity(granularity)
    if granularity == "step":
        return tuple(Span((step,)) for step in steps)
    blocks = groupby(steps, key=lambda step: (step.stage, step.block))
    return tuple(Span(tuple(members)) for _, members in blocks)
