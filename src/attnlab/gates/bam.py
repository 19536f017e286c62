"""Bottleneck Attention Module (Park et al., BMVC 2018).

A channel branch, two layers on the means z, and a spatial branch, a 1 x 1 convolution to C / 16
channels, two dilated 3 x 3 ones and a 1 x 1 one to a single map, meet in one sigmoid. The module
adds its input, `x + x ⊗ σ(...)`, which makes the gate `1 + σ(channel(z) + spatial(x))`.
"""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn
from torch.nn import functional as F

from attnlab._errors import OptionError
from attnlab._types import Features, Vector
from attnlab.gates._gate import BranchGate
from attnlab.gates._pooling import spatial_mean
from attnlab.gates._shared import broadcast_like, check_batch_statistics, floored_width, zero
from attnlab.gates._statistics import SpatialMap


class ChannelBranch(nn.Module):
    """Two layers on the channel means, with BatchNorm and ReLU between them."""

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(channels, hidden)
        self.norm = nn.BatchNorm1d(hidden)
        self.fc2 = nn.Linear(hidden, channels)

    def forward(self, means: Vector) -> Vector:
        return self.fc2(F.relu(self.norm(self.fc1(means))))


class SpatialBranch(nn.Module):
    """Reduce, look around twice, and weigh into one map; BatchNorm and ReLU after all but that."""

    def __init__(self, channels: int, hidden: int, dilation: int) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(channels, hidden, 1)
        self.norm0 = nn.BatchNorm2d(hidden)
        self.conv1 = nn.Conv2d(hidden, hidden, 3, padding=dilation, dilation=dilation)
        self.norm1 = nn.BatchNorm2d(hidden)
        self.conv2 = nn.Conv2d(hidden, hidden, 3, padding=dilation, dilation=dilation)
        self.norm2 = nn.BatchNorm2d(hidden)
        self.weigh = nn.Conv2d(hidden, 1, 1)

    def forward(self, branch: Features) -> SpatialMap:
        around = F.relu(self.norm0(self.reduce(branch)))
        around = F.relu(self.norm1(self.conv1(around)))
        around = F.relu(self.norm2(self.conv2(around)))
        return self.weigh(around)


def _one_plus_sigmoid_of_sum(channel: Tensor, spatial: Tensor) -> Tensor:
    return (channel + spatial).sigmoid_() + 1


def _one_plus_sigmoid_of_product(channel: Tensor, spatial: Tensor) -> Tensor:
    return (channel * spatial).sigmoid_() + 1


class BottleneckAttention(BranchGate):
    """BAM gate, between 1 and 2.

    The paper adds the two branches, and found that better than to multiply them; the authors' code
    multiplies: `official=True`. The norms are where that code has them, after every hidden layer;
    the paper writes one at the end of each branch.
    """

    def __init__(
        self, channels: int, reduction: int = 16, dilation: int = 4, official: bool = False
    ) -> None:
        super().__init__(channels)
        if dilation < 1:
            raise OptionError(f"Expected dilation to be at least 1 but got {dilation}.")
        hidden = floored_width(channels, reduction)
        self.channel = ChannelBranch(channels, hidden)
        self.spatial = SpatialBranch(channels, hidden, dilation)
        self.official = official

    def forward(self, branch: Features) -> Features:
        self.check_input(branch)
        check_batch_statistics(
            self.channel.norm, branch.shape[0], type(self).__name__, "Use a batch of at least 2"
        )
        channel = self.channel(spatial_mean(branch))[:, :, None, None].to(branch.dtype)
        spatial = self.spatial(branch).to(branch.dtype)
        combine = _one_plus_sigmoid_of_product if self.official else _one_plus_sigmoid_of_sum
        return broadcast_like(branch, combine, channel, spatial)

    def start_constant(self) -> float:
        zero(self.channel.fc2)
        zero(self.spatial.weigh)
        if self.official:
            # A product of two zeros would pass no gradient to either.
            nn.init.ones_(cast("Tensor", self.spatial.weigh.bias))
        return 1.5

    def extra_repr(self) -> str:
        return f"{self.channels}, official={self.official}"
