"""ResNets for small images (He et al., CVPR 2016): 6n+2 basic and 9n+2 bottleneck layers.

A 3x3 stem without max-pool, three stages of n blocks with widths 16, 32, 64 and strides 1, 2, 2,
global average pooling and one linear layer. Post-activation, as in the public code of the papers.

State-dict names: `conv1`, `bn1`, `layer{1,2,3}.{block}.{conv1,bn1,conv2,bn2[,conv3,bn3]}`,
`layer{1,2,3}.{block}.shortcut.0` (1x1 convolution) and `.shortcut.1` (its norm), `fc`.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab._errors import OptionError, unknown_name
from attnlab.networks.backbones._blocks import (
    BasicBlock,
    BlockBuilder,
    Bottleneck,
    Convolution3x3,
    Shortcut,
    convolution3x3,
)
from attnlab.networks.backbones._init import initialise

STAGE_WIDTHS = (16, 32, 64)
SHORTCUTS: tuple[Shortcut, ...] = ("projection", "zero_pad")


class ResNet(nn.Module):
    """Three stages of `blocks_per_stage` residual blocks for images of any size."""

    def __init__(
        self,
        block: BlockBuilder,
        blocks_per_stage: int,
        num_classes: int = 10,
        in_channels: int = 3,
        convolution: Convolution3x3 = convolution3x3,
    ) -> None:
        super().__init__()
        self.input_size = (in_channels, 32, 32)
        self.conv1, self.bn1 = convolution(in_channels, STAGE_WIDTHS[0], 1)
        channels = STAGE_WIDTHS[0]
        stages = []
        for width, first_stride in zip(STAGE_WIDTHS, (1, 2, 2), strict=True):
            blocks = []
            for index in range(blocks_per_stage):
                blocks.append(block(channels, width, first_stride if index == 0 else 1))
                channels = blocks[-1].out_channels
            stages.append(nn.Sequential(*blocks))
        self.layer1, self.layer2, self.layer3 = stages
        self.fc = nn.Linear(channels, num_classes)
        initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(images)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


def basic_resnet(
    depth: int, num_classes: int = 10, in_channels: int = 3, shortcut: Shortcut = "projection"
) -> ResNet:
    """ResNet of depth 6n+2 with basic blocks.

    `shortcut="projection"` (option B) has a 1x1 convolution and a norm where the shape changes;
    `shortcut="zero_pad"` (option A) has no parameters there and is what He et al. used on CIFAR.
    """
    if shortcut not in SHORTCUTS:
        raise unknown_name("shortcut", shortcut, SHORTCUTS)
    block = partial(BasicBlock, shortcut=shortcut)
    return ResNet(block, blocks_per_stage(depth, 6), num_classes, in_channels)


def bottleneck_resnet(depth: int, num_classes: int = 10, in_channels: int = 3) -> ResNet:
    """ResNet of depth 9n+2 with bottleneck blocks; the first block of every stage projects."""
    return ResNet(Bottleneck, blocks_per_stage(depth, 9), num_classes, in_channels)


def blocks_per_stage(depth: int, layers: int) -> int:
    """n of a network with `depth` = `layers` · n + 2."""
    blocks, rest = divmod(depth - 2, layers)
    if rest or blocks < 1:
        raise OptionError(
            f"Expected depth to be {layers}n+2 for a whole number n ≥ 1 but got {depth}. "
            f"Nearest: {layers * max(1, round((depth - 2) / layers)) + 2}."
        )
    return blocks
