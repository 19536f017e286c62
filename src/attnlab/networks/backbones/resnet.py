"""ResNets for small images (He et al., CVPR 2016): 6n+2 basic and 9n+2 bottleneck layers.

A 3x3 stem without max-pool, three stages of n blocks with widths 16, 32, 64 and strides 1, 2, 2,
global average pooling and one linear layer. Post-activation, as in the public code of the papers:
blocks end in `branch + shortcut`, then ReLU; the branch is the output of the last norm, the
shortcut is the block's input or the output of the module `shortcut`.

State-dict names: `conv1`, `bn1`, `layer{1,2,3}.{block}.{conv1,bn1,conv2,bn2[,conv3,bn3]}`,
`layer{1,2,3}.{block}.shortcut.0` (1x1 convolution) and `.shortcut.1` (its norm), `fc`.

`parameters` makes the hidden layers of the blocks wider: see `_hidden`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab._errors import OptionError, unknown_name
from attnlab.networks.backbones._hidden import check_parameters, widened
from attnlab.networks.backbones._init import initialise

Shortcut = Literal["projection", "zero_pad"]

Convolution3x3 = Callable[[int, int, int], tuple[nn.Module, nn.Module]]
"""(in_channels, out_channels, stride) -> a 3x3 convolution and the norm after it."""


def convolution3x3(in_channels: int, out_channels: int, stride: int) -> tuple[nn.Module, nn.Module]:
    """The plain pair: a 3x3 convolution without bias, and BatchNorm."""
    convolution = nn.Conv2d(in_channels, out_channels, 3, stride, padding=1, bias=False)
    return convolution, nn.BatchNorm2d(out_channels)


def zero_pad_shortcut(x: Tensor, out_channels: int, stride: int) -> Tensor:
    """He et al.'s option A: every `stride`-th pixel; new channels are zero, half on each side."""
    missing = out_channels - x.shape[1]
    before = missing // 2
    return F.pad(x[:, :, ::stride, ::stride], (0, 0, 0, 0, before, missing - before))


class ZeroPadShortcut(nn.Module):
    """`zero_pad_shortcut` as a module; it has no parameters."""

    def __init__(self, out_channels: int, stride: int) -> None:
        super().__init__()
        self.out_channels = out_channels
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        return zero_pad_shortcut(x, self.out_channels, self.stride)

    def extra_repr(self) -> str:
        return f"{self.out_channels}, stride={self.stride}"


def projection_shortcut(in_channels: int, out_channels: int, stride: int) -> nn.Sequential:
    """He et al.'s option B: a strided 1x1 convolution and BatchNorm."""
    return nn.Sequential(
        nn.Conv2d(in_channels, out_channels, 1, stride, bias=False),
        nn.BatchNorm2d(out_channels),
    )


class BasicBlock(nn.Module):
    """3x3, 3x3; a shortcut of its own only where the shape changes."""

    def __init__(
        self,
        in_channels: int,
        width: int,
        stride: int,
        hidden: int | None = None,
        *,
        shortcut: Shortcut = "projection",
        convolution: Convolution3x3 = convolution3x3,
    ) -> None:
        super().__init__()
        hidden = width if hidden is None else hidden
        self.conv1, self.bn1 = convolution(in_channels, hidden, stride)
        self.conv2, self.bn2 = convolution(hidden, width, 1)
        self.shortcut: nn.Module
        if stride == 1 and in_channels == width:
            self.shortcut = nn.Identity()
        elif shortcut == "zero_pad":
            self.shortcut = ZeroPadShortcut(width, stride)
        else:
            self.shortcut = projection_shortcut(in_channels, width, stride)
        self.in_channels, self.out_channels, self.hidden = in_channels, width, hidden

    def hidden_size(self, hidden: int) -> int:
        """Count the parameters around the hidden layer if it had this many channels."""
        return hidden * (9 * self.in_channels + 2 + 9 * self.out_channels)

    def forward(self, x: Tensor) -> Tensor:
        shortcut = self.shortcut(x)
        hidden = F.relu(self.bn1(self.conv1(x)))
        branch = self.bn2(self.conv2(hidden))
        return F.relu(branch + shortcut)


class Bottleneck(nn.Module):
    """1x1, 3x3 (which has the stride), 1x1 to four times the width."""

    def __init__(
        self,
        in_channels: int,
        width: int,
        stride: int,
        hidden: int | None = None,
        *,
        convolution: Convolution3x3 = convolution3x3,
    ) -> None:
        super().__init__()
        out_channels = 4 * width
        hidden = width if hidden is None else hidden
        self.conv1 = nn.Conv2d(in_channels, hidden, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(hidden)
        self.conv2, self.bn2 = convolution(hidden, hidden, stride)
        self.conv3 = nn.Conv2d(hidden, out_channels, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out_channels)
        self.shortcut: nn.Module
        if stride == 1 and in_channels == out_channels:
            self.shortcut = nn.Identity()
        else:
            self.shortcut = projection_shortcut(in_channels, out_channels, stride)
        self.in_channels, self.out_channels, self.hidden = in_channels, out_channels, hidden

    def hidden_size(self, hidden: int) -> int:
        """Count the parameters around the hidden layers if they had this many channels."""
        return hidden * (self.in_channels + 2 + 9 * hidden + 2 + self.out_channels)

    def forward(self, x: Tensor) -> Tensor:
        shortcut = self.shortcut(x)
        hidden = F.relu(self.bn1(self.conv1(x)))
        hidden = F.relu(self.bn2(self.conv2(hidden)))
        branch = self.bn3(self.conv3(hidden))
        return F.relu(branch + shortcut)


Block = BasicBlock | Bottleneck
BlockBuilder = Callable[[int, int, int, int | None], Block]
"""(in_channels, width, stride, hidden width or None for the usual one) -> a block."""


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
        hidden: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        self.input_size = (in_channels, 32, 32)
        self.conv1, self.bn1 = convolution(in_channels, STAGE_WIDTHS[0], 1)
        channels = STAGE_WIDTHS[0]
        stages = []
        inside = iter([None] * 3 * blocks_per_stage if hidden is None else hidden)
        for width, first_stride in zip(STAGE_WIDTHS, (1, 2, 2), strict=True):
            blocks = []
            for index in range(blocks_per_stage):
                stride = first_stride if index == 0 else 1
                blocks.append(block(channels, width, stride, next(inside)))
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
    depth: int,
    num_classes: int = 10,
    in_channels: int = 3,
    shortcut: Shortcut = "projection",
    parameters: int | None = None,
) -> ResNet:
    """ResNet of depth 6n+2 with basic blocks.

    `shortcut="projection"` (option B) has a 1x1 convolution and a norm where the shape changes;
    `shortcut="zero_pad"` (option A) has no parameters there and is what He et al. used on CIFAR.
    `parameters` is how many the network is to have, by wider hidden layers.
    """
    if shortcut not in SHORTCUTS:
        raise unknown_name("shortcut", shortcut, SHORTCUTS)
    block = partial(BasicBlock, shortcut=shortcut)
    return _as_large(
        partial(ResNet, block, blocks_per_stage(depth, 6), num_classes, in_channels), parameters
    )


def bottleneck_resnet(
    depth: int, num_classes: int = 10, in_channels: int = 3, parameters: int | None = None
) -> ResNet:
    """ResNet of depth 9n+2 with bottleneck blocks; the first block of every stage projects.

    `parameters` is how many the network is to have, by wider hidden layers.
    """
    number = blocks_per_stage(depth, 9)
    return _as_large(partial(ResNet, Bottleneck, number, num_classes, in_channels), parameters)


def _as_large(build: Callable[..., ResNet], parameters: int | None) -> ResNet:
    """Build the network with as nearly this many parameters as its hidden layers allow."""
    if parameters is None:
        return build()
    with torch.device("meta"):  # to be counted only: it draws no random numbers
        plain = build()
    has = sum(each.numel() for each in plain.parameters())
    check_parameters(parameters, has)
    blocks = [b for b in plain.modules() if isinstance(b, BasicBlock | Bottleneck)]
    sizes = [block.hidden_size for block in blocks]
    return build(hidden=widened([block.hidden for block in blocks], sizes, parameters - has))


def blocks_per_stage(depth: int, layers: int) -> int:
    """n of a network with `depth` = `layers` · n + 2."""
    blocks, rest = divmod(depth - 2, layers)
    if rest or blocks < 1:
        raise OptionError(
            f"Expected depth to be {layers}n+2 for a whole number n ≥ 1 but got {depth}. "
            f"Nearest: {layers * max(1, round((depth - 2) / layers)) + 2}."
        )
    return blocks
