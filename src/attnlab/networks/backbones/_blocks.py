"""The two residual blocks of the CIFAR ResNets and their three shortcuts.

Both end in `branch + shortcut`, then ReLU (post-activation); the branch is the output of the last
norm, the shortcut is the block's input or the output of the module `shortcut`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F

Shortcut = Literal["projection", "zero_pad"]

Convolution3x3 = Callable[[int, int, int], tuple[nn.Module, nn.Module]]
"""(in_channels, out_channels, stride) -> a 3x3 convolution and the norm behind it."""


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
        shortcut: Shortcut = "projection",
        convolution: Convolution3x3 = convolution3x3,
    ) -> None:
        super().__init__()
        self.conv1, self.bn1 = convolution(in_channels, width, stride)
        self.conv2, self.bn2 = convolution(width, width, 1)
        self.shortcut: nn.Module
        if stride == 1 and in_channels == width:
            self.shortcut = nn.Identity()
        elif shortcut == "zero_pad":
            self.shortcut = ZeroPadShortcut(width, stride)
        else:
            self.shortcut = projection_shortcut(in_channels, width, stride)
        self.out_channels = width

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
        convolution: Convolution3x3 = convolution3x3,
    ) -> None:
        super().__init__()
        out_channels = 4 * width
        self.conv1 = nn.Conv2d(in_channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2, self.bn2 = convolution(width, width, stride)
        self.conv3 = nn.Conv2d(width, out_channels, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out_channels)
        self.shortcut: nn.Module
        if stride == 1 and in_channels == out_channels:
            self.shortcut = nn.Identity()
        else:
            self.shortcut = projection_shortcut(in_channels, out_channels, stride)
        self.out_channels = out_channels

    def forward(self, x: Tensor) -> Tensor:
        shortcut = self.shortcut(x)
        hidden = F.relu(self.bn1(self.conv1(x)))
        hidden = F.relu(self.bn2(self.conv2(hidden)))
        branch = self.bn3(self.conv3(hidden))
        return F.relu(branch + shortcut)


Block = BasicBlock | Bottleneck
BlockBuilder = Callable[[int, int, int], Block]
"""(in_channels, width, stride) -> a block."""
