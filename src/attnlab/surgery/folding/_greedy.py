"""Which gates to make constant first: greedy, by what they cost together with those before."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable
from math import inf, isfinite
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)


def greedy(keys: Iterable[Key], cost: Callable[[frozenset[Key]], float]) -> list[Key]:
    """All of `keys` in order: next comes the one that costs least together with those before.

    Lazily: what a key added when it was last tried orders the trials, and one that is still the
    cheapest after a fresh trial is taken. Where a key adds no less in larger company, that is the
    order of trying all of them each time, with far fewer trials.
    """
    waiting = [(0.0, -1, number, key, 0.0) for number, key in enumerate(keys)]
    heapq.heapify(waiting)
    taken: list[Key] = []
    before = 0.0
    while waiting:
        _, tried_with, number, key, together = heapq.heappop(waiting)
        if tried_with == len(taken):
            taken.append(key)
            before = together
            continue
        together = cost(frozenset((*taken, key)))
        added = together - before if isfinite(together) else inf
        heapq.heappush(waiting, (added, len(taken), number, key, together))
    return taken
