"""What a repair did, without what does it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Repair:
    """What a repair did."""

    epochs: int
    moving: str
    parameters: int
    """How many numbers could move."""
    losses: tuple[float, ...]
    """Mean of every epoch: the squared change of the output, relative."""
    seconds: float
    """The seconds of all epochs, those before a stop as well."""
