"""Run a network as if some of its steps were not there."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from attnlab.residuals import Observer, SeenStep, StepKey


class LeavesOut(Observer):
    """Adds zeros in the place of the branches of chosen steps."""

    def __init__(self, keys: Collection[StepKey]) -> None:
        self.keys = keys

    def step_seen(self, seen: SeenStep) -> Tensor | None:
        return torch.zeros_like(seen.branch) if seen.step.key in self.keys else None
