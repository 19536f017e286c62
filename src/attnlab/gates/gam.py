"""Global Attention Mechanism (Liu et al., 2021).

No pooling anywhere: a two-layer perceptron over the channels of each pixel makes `c = σ(M(x))`, two
7 x 7 convolutions over C / 4 channels of the map already multiplied by c make
`s = σ(BN(conv(ReLU(BN(conv(c x))))))`, and `gate = c ⊗ s`.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab._types import Features
from attnlab.gates._gate import BranchGate
from attnlab.gates._shared import check_batch_statistics, floored_width, ordered_like, zero

KERNEL = 7


def _quickly_convolved(features: Features) -> Features:
    """Convolve in the memory order in which it is faster: on a CPU, a channels-last map that is not
    larger than the kernel takes up to twice as long."""
    if (
        features.shape[2] * features.shape[3] > KERNEL**2
        or torch.compiler.is_compiling()
        or features.device.type != "cpu"
    ):
        return features
    return features.contiguous()


class GlobalAttention(BranchGate):
    """GAM gate. It is large: 25 C² parameters.

    The paper draws a sigmoid after the perceptron; the code that circulates under the authors'
    names has none there, so that its c is any number: `official=True`. The variant of the paper's
    ResNet50 with grouped convolutions and a channel shuffle is not here.
    """

    def __init__(self, channels: int, reduction: int = 4, official: bool = False) -> None:
        super().__init__(channels)
        hidden = floored_width(channels, reduction)
        # The perceptron as 1 x 1 convolutions, which read either memory order without a copy.
        self.fc1 = nn.Conv2d(channels, hidden, 1)
        self.fc2 = nn.Conv2d(hidden, channels, 1)
        self.conv1 = nn.Conv2d(channels, hidden, KERNEL, padding=KERNEL // 2)
        self.norm1 = nn.BatchNorm2d(hidden)
        self.conv2 = nn.Conv2d(hidden, channels, KERNEL, padding=KERNEL // 2)
        self.norm2 = nn.BatchNorm2d(channels)
        self.official = official

    def forward(self, branch: Features) -> Features:
        self.check_input(branch)
        batch, _, height, width = branch.shape
        remedy = "Use a larger batch or a larger map"
        check_batch_statistics(self.norm1, batch * height * width, type(self).__name__, remedy)
        channel = self.fc2(F.relu(self.fc1(branch))).to(branch.dtype)
        if not self.official:
            channel = torch.sigmoid(channel)
        around = F.relu(self.norm1(self.conv1(_quickly_convolved(branch * channel))))
        spatial = torch.sigmoid(self.norm2(self.conv2(around))).to(branch.dtype)
        return ordered_like(channel * spatial, branch)

    def start_constant(self) -> float:
        zero(self.fc2)
        zero(self.conv2)
        self.norm2.reset_parameters()
        if not self.official:
            return 0.25
        nn.init.ones_(cast("Tensor", self.fc2.bias))
        return 0.5

    def extra_repr(self) -> str:
        return f"{self.channels}, official={self.official}"
