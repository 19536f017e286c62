"""What a strategy is: a name, what it needs, and a function of what is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from torch import nn

from attnlab.instruments.place.block import Block, by_stage
from attnlab.residuals.example import Example
from attnlab.residuals.inputs import Batches

Needs = Literal["images", "labels"]
"""Labels are images with their classes."""


@dataclass(frozen=True)
class Placing:
    """What a strategy is asked for."""

    network: nn.Module
    blocks: Sequence[Block]
    example: Example
    budget: int
    """How many blocks; in every stage, with `per_stage`."""
    per_stage: bool
    loader: Batches
    """Batches of training images; may be gone through more than once."""
    spread_gate: str = "se"
    """Whose spread is measured, by the strategy `spread`."""

    @property
    def groups(self) -> list[list[Block]]:
        """The blocks among which the budget is spent: all, or those of each stage."""
        return by_stage(self.blocks) if self.per_stage else [list(self.blocks)]


@dataclass(frozen=True)
class Scored:
    """A number per step: the blocks with the largest, or smallest, are chosen."""

    scores: Mapping[str, float]
    """By the label of the step; a block has the largest of its steps. Blocks without one are not
    chosen."""
    quantity: str
    """What the number is: `NSI`."""
    images: int
    largest: bool = True
    details: Mapping[str, str] = field(default_factory=dict)
    """What else is known of a step: `± 0.11 over images`."""
    notes: tuple[str, ...] = ()
    unscored: str = ""
    """Why some blocks have no number."""


@dataclass(frozen=True)
class Strategy:
    """A way to choose blocks by a measurement."""

    name: str
    what: str
    """In one line."""
    needs: Needs
    run: Callable[[Placing], Scored]
