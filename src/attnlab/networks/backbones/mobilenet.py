"""MobileNetV1 (Howard et al., 2017) for small images: the stem has stride 1.

State-dict names: `conv1`, `bn1`, `fc`, and for the blocks 0 to 12
`blocks.{i}.{depthwise,depthwise_bn,pointwise,pointwise_bn}`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.networks.backbones._init import initialise

STEM_WIDTH = 32
BLOCKS = (
    (64, 1),
    (128, 2),
    (128, 1),
    (256, 2),
    (256, 1),
    (512, 2),
    *((512, 1),) * 5,
    (1024, 2),
    (1024, 1),
)
"""(width, stride) of the 13 blocks."""


class DepthwiseSeparable(nn.Module):
    """3x3 per channel, norm, ReLU, 1x1 over channels, norm, ReLU.

    The 1x1 convolution has a bias and the 3x3 has none, as in the code that the papers' training
    settings come from. The bias is redundant before a norm; the parameter counts include it.
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(
            in_channels, in_channels, 3, stride, padding=1, groups=in_channels, bias=False
        )
        self.depthwise_bn = nn.BatchNorm2d(in_channels)
        self.pointwise = nn.Conv2d(in_channels, out_channels, 1)
        self.pointwise_bn = nn.BatchNorm2d(out_channels)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.depthwise_bn(self.depthwise(x)))
        return F.relu(self.pointwise_bn(self.pointwise(x)))


class MobileNetV1(nn.Module):
    """MobileNetV1, width multiplier 1."""

    def __init__(self, num_classes: int = 10, in_channels: int = 3) -> None:
        super().__init__()
        self.input_size = (in_channels, 32, 32)
        self.conv1 = nn.Conv2d(in_channels, STEM_WIDTH, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(STEM_WIDTH)
        channels = STEM_WIDTH
        blocks = []
        for width, stride in BLOCKS:
            blocks.append(DepthwiseSeparable(channels, width, stride))
            channels = width
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(channels, num_classes)
        initialise(self)

    @property
    def attention_sites(self) -> tuple[str, ...]:
        """After each depthwise and pointwise norm, before ReLU; not after the stem."""
        return tuple(
            f"blocks.{index}.{norm}"
            for index in range(len(self.blocks))
            for norm in ("depthwise_bn", "pointwise_bn")
        )

    def forward(self, images: Tensor) -> Tensor:
        x = self.blocks(F.relu(self.bn1(self.conv1(images))))
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))
