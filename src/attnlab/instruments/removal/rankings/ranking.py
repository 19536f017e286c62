"""What a ranking of steps is."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from attnlab.instruments.removal.trial import RemovalTrial
from attnlab.residuals import StepKey

Scores = dict[StepKey, float]
"""Of the steps that can be removed: how much each matters."""


@dataclass(frozen=True)
class Ranking:
    """A way to say how much a step matters; what matters least goes first."""

    name: str
    says: str
    """What a score is, as in "1.2 goes: block influence 0.03"."""
    scores: Callable[[RemovalTrial, Collection[StepKey]], Scores]
    """Given those that are left out already; only rankings that measure again look at them."""
    again: bool = False
    """Whether it is measured again after each removal."""
    needs_labels: bool = False
    on_request: bool = False
    """Whether it is meant for some outputs only, and so not drawn unless it is named."""
    source: str = ""
    """Where it comes from, if it is not ours."""
