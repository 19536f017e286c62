"""Whether the losses of a training stay finite, without waiting for the device at every step.

To ask for a number of an accelerator ends its queue: it idles until the next step is prepared. So
the losses stay where they are, and are asked for together; the error still names the step. On the
CPU each is looked at before the weights change, which costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from attnlab.lab.training.diagnose import NonFiniteLossError

STEPS = 50
"""Losses that an accelerator is asked for together: at most this many steps are lost."""


class At(NamedTuple):
    """The place of a training step, epoch and step counted from 1, and its learning rate."""

    epoch: int
    step: int
    rate: float


Diagnosis = Callable[[float, At, int], NonFiniteLossError]
"""Makes the error of a loss, of where it was, and of how many steps ago that is."""


class LossWatch:
    """The losses since they were last looked at."""

    def __init__(self, every: int) -> None:
        self._every = every
        self._losses: list[Tensor] = []
        self._at: list[At] = []
        self._diagnosis: Diagnosis | None = None

    @classmethod
    def of(cls, device: torch.device) -> LossWatch:
        """Look at every loss on the CPU, at some together on other devices."""
        return cls(1 if device.type == "cpu" else STEPS)

    def see(self, loss: Tensor, at: At, diagnosis: Diagnosis) -> None:
        """Remember a loss, and look if it is time; `diagnosis` knows its batch."""
        self._losses.append(loss.detach())
        self._at.append(at)
        self._diagnosis = diagnosis
        if len(self._losses) >= self._every:
            self.look()

    def look(self) -> None:
        """Raise for the first loss that is not finite. Nothing is saved before this was called."""
        if not self._losses or self._diagnosis is None:
            return
        values = torch.stack(self._losses).tolist()
        for value, at in zip(values, self._at, strict=True):
            if not math.isfinite(value):
                raise self._diagnosis(value, at, self._at[-1].step - at.step)
        self._losses, self._at, self._diagnosis = [], [], None
