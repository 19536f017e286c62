"""Efficient Channel Attention (Wang et al., CVPR 2020).

`gate = σ(w * z)`, a convolution of the channel means z along the channel axis, without bias.
"""

from __future__ import annotations

import math

from torch import nn

from attnlab._errors import OptionError
from attnlab._types import ChannelGate, Maps, Vector
from attnlab.gates._gate import ANY_RANK, Activation, VectorGate
from attnlab.gates._pooling import spatial_mean
from attnlab.gates._shared import as_channel_gate


def adaptive_kernel_size(channels: int) -> int:
    """The odd number at or above int(|log₂ C + 1| / 2): 3, 5, 5 for 64, 128, 256 channels."""
    size = int(abs((math.log2(channels) + 1) / 2))
    return size if size % 2 == 1 else size + 1


def channel_convolution(channels: int, kernel_size: int | None) -> nn.Conv1d:
    """The convolution along the channels that ECA and SEM use."""
    size = adaptive_kernel_size(channels) if kernel_size is None else kernel_size
    if size < 1 or size % 2 == 0:
        raise OptionError(
            f"Expected an odd kernel_size, so that the number of channels is kept, but got {size}. "
            f"For {channels} channels the paper's rule gives {adaptive_kernel_size(channels)}."
        )
    return nn.Conv1d(1, 1, size, padding=size // 2, bias=False)


class EfficientChannelAttention(VectorGate):
    """ECA gate; `kernel_size=None` takes the paper's rule."""

    ranks = ANY_RANK

    def __init__(self, channels: int, kernel_size: int | None = None) -> None:
        super().__init__(channels)
        self.conv = channel_convolution(channels, kernel_size)

    def forward(self, branch: Maps) -> ChannelGate:
        self.check_input(branch)
        return as_channel_gate(self.of_vector(spatial_mean(branch), self.squash), branch)

    def of_vector(self, vector: Vector, activation: Activation) -> Vector:
        return activation(self.conv(vector.unsqueeze(1)).squeeze(1))

    def start_constant(self) -> float:
        nn.init.zeros_(self.conv.weight)
        return 0.5
