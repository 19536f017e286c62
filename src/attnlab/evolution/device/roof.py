"""What the device can do at most: bytes moved and products summed per second."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from attnlab.evolution.device.machine import median_seconds


@dataclass(frozen=True)
class Limits:
    """Measured, not taken from a data sheet."""

    bytes_per_second: float
    """Of a copy, reading and writing counted."""
    flops_per_second: float
    """Of a product of square matrices in the storage type; float32 without TF32."""

    def floor(self, moved: float, flops: float) -> float:
        """Seconds that no kernel which moves and computes this much can beat."""
        return max(moved / self.bytes_per_second, flops / self.flops_per_second)


def limits(device: torch.device, dtype: torch.dtype, megabytes: int, side: int) -> Limits:
    """Copy `megabytes`, and multiply matrices of `side` × `side`."""
    block = torch.zeros(megabytes * 2**20 // dtype.itemsize, dtype=dtype, device=device)
    target = torch.empty_like(block)
    matrix = torch.randn(side, side, device=device).to(dtype)
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        seconds = median_seconds(
            {"copy": lambda: target.copy_(block), "product": lambda: matrix @ matrix}, device
        )
    finally:
        torch.set_float32_matmul_precision(precision)
    moved = 2 * block.numel() * dtype.itemsize
    return Limits(moved / seconds["copy"], 2 * side**3 / seconds["product"])
