"""All blocks: the upper bound that the other strategies are compared with."""

from __future__ import annotations

from attnlab.instruments.place.strategy import Asked, Picked, Strategy


def everywhere(asked: Asked) -> Picked:
    """Every block; the budget is their number."""
    return Picked(asked.blocks, "every block")


ALL = Strategy("all", "every block", "nothing", everywhere)
