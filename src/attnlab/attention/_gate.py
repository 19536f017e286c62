"""What a gate is.

A residual network takes steps, `x_{t+1} = x_t + gate ⊗ f(x_t)`. A gate computes the attention value;
it never multiplies. The place where it was inserted does that.

Three forms, told apart by what they read:

* `BranchGate` reads the branch `f(x_t)`: SE, CBAM, ECA, ...
* `StepGate` reads both ends of the step, `x_t` and `f(x_t)`: StepNet's adaptor.
* `StageGate` also reads what the previous block of its stage left behind: DIA.

All see channel-first maps of shape (batch, channels, height, width) and return a value that
broadcasts to them. Other layouts (tokens, channels last) are the inserting site's business.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor, nn

from attnlab._errors import OptionError


class Gate(nn.Module, ABC):
    """Base of all gates. Build with the number of channels first: `Gate(channels, ...)`."""

    on_vector: ClassVar[bool] = False
    """Whether the gate can be computed from a learned vector ψ of shape (1, C, 1, 1) alone (ASR)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        if channels < 1:
            raise OptionError(f"Expected channels to be at least 1 but got {channels}.")
        self.channels = channels

    @abstractmethod
    def start_constant(self) -> float:
        """Re-initialise so that the gate is one constant for every input and channel; return it.

        The constant must be away from 0 and its gradient must reach the gate. Insertion with
        `start="identity"` multiplies by the reciprocal, so that the network is unchanged at first.
        """

    def extra_repr(self) -> str:
        return f"{self.channels}"


class BranchGate(Gate):
    """A gate that reads the branch alone."""

    @abstractmethod
    def forward(self, branch: Tensor) -> Tensor:
        """The attention value, broadcastable to `branch` (B, C, H, W)."""


class StepGate(Gate):
    """A gate that reads both ends of the step."""

    @abstractmethod
    def forward(self, shortcut: Tensor, branch: Tensor) -> Tensor:
        """The attention value of the step from `shortcut` to `shortcut + branch`."""


class StageGate(Gate):
    """A gate shared by all blocks of a stage, which hands a memory from block to block."""

    @abstractmethod
    def forward(
        self, branch: Tensor, memory: tuple[Tensor, ...] | None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The attention value and the memory for the next block; `memory` is None at the first."""
