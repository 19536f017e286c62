"""Efficient Multi-Scale Attention, EMA (Ouyang et al., ICASSP 2023).

In each of 32 groups of c channels, with one set of weights for all groups: `u` is the map gated by
its rows and columns, `u = GN(x ⊗ σ(rows) ⊗ σ(columns))`, and `v` is a 3 x 3 convolution of it. Each
weighs the channels of the other by its own means, and one gate per pixel and group comes out:
`gate = σ(Σ_c softmax(mean u)_c v_c + Σ_c softmax(mean v)_c u_c)`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from attnlab._types import Features
from attnlab.gates._gate import BranchGate
from attnlab.gates._pooling import pixel_count, spatial_mean
from attnlab.gates._shared import group_count, zero
from attnlab.gates._statistics import degrees_of_freedom, spatial_moments
from attnlab.gates.sge import spread_over_groups

LANES = 16
"""Channels that a convolution on a CPU computes at once."""


class PackedConv2d(nn.Conv2d):
    """A convolution of few channels over many maps, which keeps the size of its maps and their
    number of channels.

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
        """Return the weight and the bias of the convolution over maps that are packed together."""
        apart = torch.eye(self.together, dtype=self.weight.dtype)
        weight = apart[:, None, :, None, None, None] * self.weight[None, :, None]
        assert self.bias is not None
        return weight.flatten(2, 3).flatten(0, 1), self.bias.repeat(self.together)


class EfficientMultiScaleAttention(BranchGate):
    """The gate of EMA, efficient multi-scale attention.

    Ours: where 32 does not divide the channels, the largest number of groups below it that does,
    where the authors' code fails.
    """

    def __init__(self, channels: int, groups: int = 32) -> None:
        super().__init__(channels)
        self.groups = group_count(channels, groups)
        members = channels // self.groups
        self.strips = nn.Conv1d(members, members, 1)
        self.conv = PackedConv2d(members, 3, self.groups)
        self.norm = nn.GroupNorm(members, members)

    def forward(self, branch: Features) -> Features:
        self.check_input(branch)
        batch, _, height, width = branch.shape
        members = self.channels // self.groups
        grouped = branch.reshape(batch * self.groups, members, height, width)
        strips = torch.cat((grouped.mean(dim=3), grouped.mean(dim=2)), dim=2)
        rows, columns = torch.sigmoid(self.strips(strips)).split([height, width], dim=2)
        crossed = grouped * rows[:, :, :, None] * columns[:, :, None, :]
        around = self.conv(grouped)
        # The mean of a channel that was normalised over space is the norm's bias, whatever came in.
        from_crossed = torch.softmax(self.norm.bias, dim=0)
        from_around = torch.softmax(spatial_mean(around), dim=1)
        first = torch.matmul(from_crossed.to(around.dtype), around.flatten(2))
        gate = torch.sigmoid(first + self._weighed(crossed, from_around))
        maps = gate.to(branch.dtype).view(batch, self.groups, height, width)
        return spread_over_groups(maps, branch)

    def _weighed(self, crossed: Features, weights: Tensor) -> Tensor:
        """Σ_c weights_c GN(crossed)_c of every pixel, each channel normalised over space by itself.

        Not the module's forward, which refuses a map of one pixel and makes a map of full size.
        """
        wide = torch.promote_types(crossed.dtype, torch.float32)
        mean, variance = spatial_moments(crossed.to(wide))
        population = variance * (degrees_of_freedom(crossed) / pixel_count(crossed))
        slope = self.norm.weight / torch.sqrt(population + self.norm.eps)
        offset = (weights * (self.norm.bias - slope * mean)).sum(dim=1)
        scaled = (weights * slope).to(crossed.dtype)
        return torch.matmul(scaled[:, None], crossed.flatten(2))[:, 0] + offset[:, None]

    def start_constant(self) -> float:
        nn.init.zeros_(self.norm.weight)
        nn.init.zeros_(self.norm.bias)
        zero(self.conv)
        return 0.5

    def extra_repr(self) -> str:
        return f"{self.channels}, groups={self.groups}"
