"""How many of the inputs of a measurement differ: copies of one image prove nothing about many."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from attnlab.instruments.enough import ENOUGH
from attnlab.residuals.inputs import number_of_inputs


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

    def see(self, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> None:
        """Take in the inputs of one call of the network."""
        for row in range(number_of_inputs(arguments, keywords)):
            if self.enough:
                return
            self._seen.add(_digest((*arguments, *keywords.values()), row))


def _digest(values: tuple[Any, ...], row: int) -> bytes:
    """What tells one input of a call from the others: its part of every tensor and list."""
    found = hashlib.sha256()
    for value in values:
        if isinstance(value, Tensor | list) and len(value) > row:
            part = value[row]
            if isinstance(part, Tensor):
                found.update(str(tuple(part.shape)).encode())
                found.update(part.detach().cpu().flatten().view(torch.uint8).numpy().tobytes())
    return found.digest()
