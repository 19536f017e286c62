"""Evenly spaced blocks: every k-th, k being the number of blocks over the budget."""

from __future__ import annotations

from attnlab.instruments.place.strategy import Asked, Picked, Strategy


def every_kth(asked: Asked) -> Picked:
    """Block number ⌊i · blocks / budget⌋ for i from 0; where that divides, `every:k` of `where`."""
    assert asked.budget is not None
    budget = asked.budget
    blocks = [
        group[place * len(group) // budget] for group in asked.groups for place in range(budget)
    ]
    return Picked(blocks, "evenly spaced")


EVERY = Strategy("every", "evenly spaced blocks, every k-th", "nothing", every_kth)
