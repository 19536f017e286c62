"""Networks for small devices, for small images: MobileNetV1 and ShuffleNetV2.

MobileNetV1 (Howard et al., 2017): the stem has stride 1. State-dict names: `conv1`, `bn1`, `fc`,
and for the blocks 0 to 12 `blocks.{i}.{depthwise,depthwise_bn,pointwise,pointwise_bn}`.

ShuffleNetV2 x1 (Ma et al., ECCV 2018): stem with stride 1 and no pooling. It follows the code that
the papers' training settings come from: every convolution has a bias, the stem has no ReLU, and the
residual branch of a unit that halves the map keeps its input width until the last convolution.
State-dict names: `conv1`, `bn1`, `conv5`, `bn5`, `fc`, and for the units
`stage{2,3,4}.{unit}.residual.{i}`; the first of a stage also has `.shortcut.{i}`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.networks.backbones._init import initialise

MOBILENET_STEM = 32
MOBILENET_BLOCKS = (
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
        self.conv1 = nn.Conv2d(in_channels, MOBILENET_STEM, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(MOBILENET_STEM)
        channels = MOBILENET_STEM
        blocks = []
        for width, stride in MOBILENET_BLOCKS:
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


SHUFFLENET_STEM = 24
STAGES = ((116, 4), (232, 8), (464, 4))
"""(width, units) of the stages 2 to 4; the first unit of each halves the map."""

LAST_WIDTH = 1024


def residual_branch(in_channels: int, out_channels: int, stride: int) -> nn.Sequential:
    """1x1, norm, ReLU, 3x3 per channel, norm, 1x1, norm, ReLU."""
    return nn.Sequential(
        nn.Conv2d(in_channels, in_channels, 1),
        nn.BatchNorm2d(in_channels),
        nn.ReLU(),
        nn.Conv2d(in_channels, in_channels, 3, stride, padding=1, groups=in_channels),
        nn.BatchNorm2d(in_channels),
        nn.Conv2d(in_channels, out_channels, 1),
        nn.BatchNorm2d(out_channels),
        nn.ReLU(),
    )


LAST_NORM = 6
"""Index of the last norm in `residual_branch`."""


def shortcut_branch(in_channels: int, out_channels: int) -> nn.Sequential:
    """Build a branch of a unit that halves the map: 3x3 per channel with stride 2, norm, 1x1, norm,
    ReLU."""
    return nn.Sequential(
        nn.Conv2d(in_channels, in_channels, 3, 2, padding=1, groups=in_channels),
        nn.BatchNorm2d(in_channels),
        nn.Conv2d(in_channels, out_channels, 1),
        nn.BatchNorm2d(out_channels),
        nn.ReLU(),
    )


class ShuffleUnit(nn.Module):
    """Half of the channels pass, the other half go through the residual branch; then shuffle."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.residual = residual_branch(channels // 2, channels // 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        shortcut, x = x.chunk(2, dim=1)
        return F.channel_shuffle(torch.cat([shortcut, self.residual(x)], dim=1), 2)


class HalvingUnit(nn.Module):
    """Both branches see all channels, halve the map and give half of the new channels each."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.shortcut = shortcut_branch(in_channels, out_channels // 2)
        self.residual = residual_branch(in_channels, out_channels // 2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return F.channel_shuffle(torch.cat([self.shortcut(x), self.residual(x)], dim=1), 2)


class ShuffleNetV2(nn.Module):
    """ShuffleNetV2 of width 1."""

    def __init__(self, num_classes: int = 10, in_channels: int = 3) -> None:
        super().__init__()
        self.input_size = (in_channels, 32, 32)
        self.conv1 = nn.Conv2d(in_channels, SHUFFLENET_STEM, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(SHUFFLENET_STEM)
        channels = SHUFFLENET_STEM
        stages = []
        for width, units in STAGES:
            rest = (ShuffleUnit(width) for _ in range(units - 1))
            stages.append(nn.Sequential(HalvingUnit(channels, width), *rest))
            channels = width
        self.stage2, self.stage3, self.stage4 = stages
        self.conv5 = nn.Conv2d(channels, LAST_WIDTH, 1)
        self.bn5 = nn.BatchNorm2d(LAST_WIDTH)
        self.fc = nn.Linear(LAST_WIDTH, num_classes)
        initialise(self)

    @property
    def attention_sites(self) -> tuple[str, ...]:
        """After the last norm of each unit's residual branch, before ReLU."""
        return tuple(
            f"stage{stage}.{unit}.residual.{LAST_NORM}"
            for stage, (_, units) in enumerate(STAGES, start=2)
            for unit in range(units)
        )

    def forward(self, images: Tensor) -> Tensor:
        x = self.bn1(self.conv1(images))
        x = self.stage4(self.stage3(self.stage2(x)))
        x = F.relu(self.bn5(self.conv5(x)))
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))
