"""An evenly spread choice: the same number from every part of something that may be sorted."""

from __future__ import annotations

import torch


def evenly_spread(there: int, wanted: int) -> list[int]:
    """`wanted` of the places 0 to `there` - 1, the first and the last among them; all of them if
    there are no more."""
    return torch.linspace(0, there - 1, min(wanted, there)).round().long().tolist()
