"""How the axes of a tensor were changed, in a form in which undoing it leaves nothing."""

from __future__ import annotations

Arrangement = tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]
"""Changes in turn, ("permute", order, ()) and ("reshape", from, to); empty if all were undone."""


def permuted(arrangement: Arrangement, order: tuple[int, ...]) -> Arrangement:
    """The arrangement after its axes were put in another order."""
    if arrangement and arrangement[-1][0] == "permute":
        before = arrangement[-1][1]
        arrangement, order = arrangement[:-1], tuple(before[axis] for axis in order)
    if order == tuple(range(len(order))):
        return arrangement
    return (*arrangement, ("permute", order, ()))


def reshaped(
    arrangement: Arrangement, before: tuple[int, ...], after: tuple[int, ...]
) -> Arrangement:
    """The arrangement after a change from one shape to another, which keeps the order of pixels."""
    if arrangement and arrangement[-1][0] == "reshape":
        arrangement, before = arrangement[:-1], arrangement[-1][1]
    if before == after:
        return arrangement
    return (*arrangement, ("reshape", before, after))
