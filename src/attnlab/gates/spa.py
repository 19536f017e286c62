"""Spatial Pyramid Attention (Guo et al., ICME 2020).

The means over 1 x 1, 2 x 2 and 4 x 4 cells, 21 per channel, go through two fully connected layers
without bias: `gate = σ(W₂ ReLU(W₁ p))`.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from attnlab._types import ChannelGate, Features, Vector
from attnlab.gates._gate import Activation, VectorGate
from attnlab.gates._pooling import (
    gradients_wanted,
    is_channels_last,
    pooling_matrix,
    shrink,
    spatial_projection,
)
from attnlab.gates._shared import Excitation, as_channel_gate, hidden_width

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


def by_level(means: Float[Tensor, "batch channels cells"]) -> Float[Tensor, "batch values"]:
    """The means ordered by level, then channel, then cell."""
    levels = means.split([level**2 for level in LEVELS], dim=2)
    return torch.cat([level.flatten(1) for level in levels], dim=1)


def pyramid(features: Features) -> Float[Tensor, "batch values"]:
    """The means over the cells of all levels, ordered as in `by_level`."""
    small = shrink(features, LEVELS[-1])
    # Torch's pooling has a slow gradient, and is not exported for maps of any size.
    forward_only = not (gradients_wanted() or torch.compiler.is_exporting())
    if forward_only and is_channels_last(small):
        return torch.cat([F.adaptive_avg_pool2d(small, n).flatten(1) for n in LEVELS], dim=1)
    windows = pyramid_matrix(small.shape[2], small.shape[3], small)
    return by_level(spatial_projection(small, windows))


class SpatialPyramidAttention(VectorGate):
    """SPA gate. Features are ordered by level, then channel, then cell."""

    def __init__(self, channels: int, reduction: int = 16) -> None:
        super().__init__(channels)
        hidden = hidden_width(channels, reduction)
        self.excitation = Excitation(CELLS * channels, hidden, channels, bias=False)

    def forward(self, branch: Features) -> ChannelGate:
        self.check_input(branch)
        return as_channel_gate(self.squash(self.excitation(pyramid(branch))), branch)

    def of_vector(self, vector: Vector, activation: Activation) -> Vector:
        constant = vector[:, :, None].expand(-1, -1, CELLS)
        return activation(self.excitation(by_level(constant)))

    def start_constant(self) -> float:
        self.excitation.start_zero()
        return 0.5
