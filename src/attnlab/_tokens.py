"""Tokens to try a network on."""

from __future__ import annotations

import torch
from torch import Tensor


def example_tokens(vocabulary: int, length: int, batch: int = 1) -> Tensor:
    """Random tokens (batch, length), the same each time."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(vocabulary, (batch, length), generator=generator)
