"""Spatial Group-wise Enhance (Li et al., 2019).

In each group of channels, the similarity of every pixel to the group's mean vector,
`t = Σ_c x_c · mean(x_c)`, is standardised over space to t̂ and gates the pixel:
`gate = σ(w t̂ + b)`.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnlab._errors import OptionError
from attnlab._types import Features
from attnlab.attention._gate import BranchGate
from attnlab.attention._moments import spatial_moments
from attnlab.attention._pooling import is_channels_last, spatial_mean

EPSILON = 1e-5


def group_count(channels: int, groups: int) -> int:
    """The largest divisor of `channels` that is at most `groups`."""
    if groups < 1:
        raise OptionError(f"Expected groups to be at least 1 but got {groups}.")
    return max(n for n in range(1, min(channels, groups) + 1) if channels % n == 0)


def group_similarity(
    features: Features, groups: int
) -> Float[Tensor, "batch {groups} height width"]:
    """Σ_c x_c · mean(x_c) over the channels c of each group, at every pixel."""
    batch, channels, height, width = features.shape
    mean = spatial_mean(features).reshape(batch, groups, 1, channels // groups)
    grouped = features.reshape(batch, groups, channels // groups, height * width)
    return torch.matmul(mean, grouped).reshape(batch, groups, height, width)


class SpatialGroupEnhance(BranchGate):
    """SGE gate. Starts at w = 0, b = 1, hence at the constant σ(1) = 0.73106.

    Ours: where 64 does not divide the channels, the largest number of groups below it that does;
    a map of one pixel, whose deviation is undefined, is standardised to 0.
    """

    def __init__(self, channels: int, groups: int = 64) -> None:
        super().__init__(channels)
        self.groups = group_count(channels, groups)
        self.weight = nn.Parameter(torch.empty(self.groups))
        self.bias = nn.Parameter(torch.empty(self.groups))
        self.start_constant()

    def forward(self, branch: Features) -> Features:
        self.check_input(branch)
        similarity = group_similarity(branch, self.groups)
        # Standardising cancels leading digits, of which bfloat16 has few.
        similarity = similarity.to(torch.promote_types(similarity.dtype, torch.float32))
        mean, variance = spatial_moments(similarity)
        # A constant map has deviation 0, where the root has no finite slope but the gate is flat.
        flat = variance == 0
        deviation = torch.where(flat, variance, torch.where(flat, 1, variance).sqrt())
        slope = self.weight / (deviation + EPSILON)
        offset = self.bias - slope * mean
        gate = torch.sigmoid(
            torch.addcmul(offset[:, :, None, None], slope[:, :, None, None], similarity)
        ).to(branch.dtype)
        gate = gate.repeat_interleave(self.channels // self.groups, dim=1)
        if is_channels_last(branch):
            return gate.contiguous(memory_format=torch.channels_last)
        return gate

    def start_constant(self) -> float:
        nn.init.zeros_(self.weight)
        nn.init.ones_(self.bias)
        return math.e / (1 + math.e)

    def extra_repr(self) -> str:
        return f"{self.channels}, groups={self.groups}"
