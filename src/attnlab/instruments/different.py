"""How many of the inputs of a measurement differ: copies of one image prove nothing about many."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

ENOUGH = 8
"""Below this many different inputs nothing is called constant. A value that is one of two, each as
often as the other, looks constant on 8 inputs with a chance of 2⁻⁷, below one in a hundred."""


def too_few_inputs(different: int, what: str) -> str:
    """A sentence for the verdict if there were too few different inputs, otherwise nothing."""
    if different >= ENOUGH:
        return ""
    if different <= 1:
        return (
            f"Only one {what}, or copies of one, was seen, so nothing can be said about whether it "
            f"depends on the {what}: give at least {ENOUGH} different ones."
        )
    return (
        f"Only {different} different {what}s were seen, and below {ENOUGH} nothing is called "
        f"constant."
    )


class DifferentInputs:
    """Counts the different inputs of a stream, by their bytes, until there are enough."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()

    @property
    def number(self) -> int:
        """How many different inputs there were, at most `ENOUGH`."""
        return len(self._seen)

    @property
    def enough(self) -> bool:
        """Whether there were enough of them to call something constant."""
        return self.number >= ENOUGH

    def see(self, arguments: tuple[object, ...], keywords: Mapping[str, object]) -> None:
        """Take in the inputs of one call of the network."""
        # Here and below, because pages use this file, and need neither a network nor torch.
        from attnlab.residuals.inputs import number_of_inputs

        for row in range(number_of_inputs(arguments, keywords)):
            if self.enough:
                return
            self._seen.add(_digest((*arguments, *keywords.values()), row))


def _digest(values: tuple[object, ...], row: int) -> bytes:
    """What tells one input of a call from the others: its part of every tensor and list."""
    import torch
    from torch import Tensor

    found = hashlib.sha256()
    for value in values:
        if isinstance(value, Tensor | list) and len(value) > row:
            part = value[row]
            if isinstance(part, Tensor):
                found.update(str(tuple(part.shape)).encode())
                found.update(part.detach().cpu().flatten().view(torch.uint8).numpy().tobytes())
    return found.digest()
