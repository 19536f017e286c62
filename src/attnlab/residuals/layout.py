"""Between a host's layout and the (batch, channels, height, width) that gates see. Views only."""

from __future__ import annotations

from torch import Tensor


def to_channel_first(features: Tensor, axis: int) -> Tensor:
    """View `features` (channels on `axis`) as (B, C, H, W); tokens become a column of height N."""
    seen = features.movedim(axis, 1)
    while seen.ndim < 4:
        seen = seen.unsqueeze(-1)
    return seen if seen.ndim == 4 else seen.flatten(3)


def gate_to_layout(gate: Tensor, features: Tensor, axis: int) -> Tensor:
    """View the (B, C, H, W)-shaped `gate` (any axis may be 1) to broadcast to `features`."""
    rank = features.ndim
    if rank < 4:
        placed = gate.flatten(rank - 1) if rank > 2 else gate[:, :, 0, 0]
    elif rank == 4:
        placed = gate
    else:
        behind = [n for d, n in enumerate(features.shape) if d not in (0, axis)]
        sizes = behind[1:] if gate.shape[3] != 1 else [1] * (rank - 3)
        placed = gate.unflatten(3, sizes)
    return placed.movedim(1, axis)
