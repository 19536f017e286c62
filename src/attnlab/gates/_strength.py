"""Identity start for what has no parameter that could make its gate constant."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Strength(nn.Module):
    """`1 + s (gate − 1)` with one learned number s, which is there only after `start_zero`.

    Ours. At s = 0 the gate is exactly 1 for every input, and its gradient reaches s; at s = 1 it
    is the paper's. Before `start_zero` this is the identity and has no parameter and no key.
    """

    value: nn.Parameter | None

    def __init__(self) -> None:
        super().__init__()
        self.register_parameter("value", None)

    def forward(self, gate: Tensor) -> Tensor:
        if self.value is None:
            return gate
        return 1 + self.value.to(gate.dtype) * (gate - 1)

    def start_zero(self) -> None:
        """Bring the number into being, at 0."""
        self.value = nn.Parameter(torch.zeros(()))
