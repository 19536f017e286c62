"""A convolution of few channels over many maps."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from attnlab.gates._shared import group_count

LANES = 16
"""Channels that a convolution on a CPU computes at once."""


class PackedConv2d(nn.Conv2d):
    """A convolution that keeps the size of its maps and their number of channels.

    On a CPU, neighbouring maps become the channels of one, with weights that are zero between them:
    a map of two channels would fill an eighth of a vector. What counts or records operations sees
    the plain convolution. A value that is not finite spreads to the maps that it is together with.
    Maps come in multiples of `number`.
    """

    def __init__(self, channels: int, kernel_size: int, number: int) -> None:
        super().__init__(channels, channels, kernel_size, padding=kernel_size // 2)
        self.together = group_count(number, max(1, LANES // channels))

    def forward(self, maps: Tensor) -> Tensor:
        if (
            self.together == 1
            or torch.compiler.is_compiling()
            or maps.device.type != "cpu"
            or is_in_torch_dispatch_mode()
        ):
            return super().forward(maps)
        packed = maps.reshape(-1, self.together * self.in_channels, *maps.shape[2:])
        return F.conv2d(packed, *self._packed(), padding=self.padding).reshape(maps.shape)

    def _packed(self) -> tuple[Tensor, Tensor]:
        """Weight and bias."""
        apart = torch.eye(self.together, dtype=self.weight.dtype)
        weight = apart[:, None, :, None, None, None] * self.weight[None, :, None]
        assert self.bias is not None
        return weight.flatten(2, 3).flatten(0, 1), self.bias.repeat(self.together)
