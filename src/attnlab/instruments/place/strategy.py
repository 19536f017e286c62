"""What a strategy is: a name, what it needs, and a function of what is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import nn

from attnlab.instruments.place.block import Block, by_stage
from attnlab.residuals.example import Example

Needs = Literal["nothing", "images", "labels"]
"""Labels are images with their classes."""


@dataclass(frozen=True)
class Asked:
    """What a strategy is asked for."""

    network: nn.Module
    blocks: Sequence[Block]
    example: Example
    budget: int | None
    """How many blocks; in every stage, with `per_stage`."""
    per_stage: bool = False
    loader: Iterable[Any] = ()
    """Batches of training images; may be gone through more than once."""
    seed: int | None = None
    where: str | None = None
    gate: str = "se"

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
class Picked:
    """Blocks, with one reason for all of them."""

    blocks: Sequence[Block]
    reason: str


@dataclass(frozen=True)
class Strategy:
    """A way to choose blocks."""

    name: str
    what: str
    """In one line."""
    needs: Needs
    run: Callable[[Asked], Scored | Picked]
    takes: frozenset[str] = frozenset()
    """Which of `seed`, `where` and `gate` it takes."""
