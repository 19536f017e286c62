"""Spatial Pyramid Attention (Guo et al., ICME 2020).

The means over 1 x 1, 2 x 2 and 4 x 4 cells, 21 per channel, go through two fully connected layers
without bias: `gate = σ(W₂ ReLU(W₁ p))`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from attnlab._types import ChannelGate, Features, Vector
from attnlab.attention._gate import Activation, VectorGate
from attnlab.attention._pooling import pooling_matrix, shrink, spatial_projection
from attnlab.attention._shared import Excitation, as_channel_gate, hidden_width

LEVELS = (1, 2, 4)
CELLS = sum(level**2 for level in LEVELS)


def pyramid_matrix(height: int, width: int, like: Tensor) -> Tensor:
    """The 21 pooling windows of the three levels as rows over the pixels of the map."""
    windows = [
        torch.einsum(
            "ih,jw->ijhw", pooling_matrix(height, level, like), pooling_matrix(width, level, like)
        ).reshape(level**2, height * width)
        for level in LEVELS
    ]
    return torch.cat(windows)


class SpatialPyramidAttention(VectorGate):
    """SPA gate. Features are ordered by level, then channel, then cell."""

    def __init__(self, channels: int, reduction: int = 16) -> None:
        super().__init__(channels)
        hidden = hidden_width(channels, reduction)
        self.excitation = Excitation(CELLS * channels, hidden, channels, bias=False)

    def forward(self, branch: Features) -> ChannelGate:
        self.check_input(branch)
        small = shrink(branch, LEVELS[-1])
        pyramid = spatial_projection(small, pyramid_matrix(small.shape[2], small.shape[3], small))
        return as_channel_gate(self._excite(pyramid, self.squash), branch)

    def of_vector(self, vector: Vector, activation: Activation) -> Vector:
        return self._excite(vector[:, :, None].expand(-1, -1, CELLS), activation)

    def start_constant(self) -> float:
        self.excitation.start_zero()
        return 0.5

    def _excite(self, pyramid: Tensor, activation: Activation) -> Vector:
        levels = pyramid.split([level**2 for level in LEVELS], dim=2)
        flat = torch.cat([level.flatten(1) for level in levels], dim=1)
        return activation(self.excitation(flat))
