"""A family of residual networks of one depth and about one number of parameters.

Five kinds of block times three ways to share width between stages: fifteen networks of three stages
of three blocks for 8×8 images, each as wide as comes nearest to `PARAMETERS`.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import product

import torch
from torch import Tensor, nn

from benchmarks._common import settings

SETTINGS = settings("stiffness")["family"]
PARAMETERS: int = SETTINGS["parameters"]
BLOCKS: int = SETTINGS["blocks"]
SHARES: dict[str, list[float]] = SETTINGS["shares"]


def _conv(inside: int, outside: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    return nn.Conv2d(
        inside, outside, kernel, stride, padding=kernel // 2, groups=groups, bias=False
    )


def _basic(inside: int, width: int, stride: int) -> list[nn.Module]:
    first = [_conv(inside, width, 3, stride), nn.BatchNorm2d(width), nn.ReLU()]
    return [*first, _conv(width, width, 3), nn.BatchNorm2d(width)]


def _before(inside: int, width: int, stride: int) -> list[nn.Module]:
    """Norm and activation come before each convolution (He et al. 2016b)."""
    first = [nn.BatchNorm2d(inside), nn.ReLU(), _conv(inside, width, 3, stride)]
    return [*first, nn.BatchNorm2d(width), nn.ReLU(), _conv(width, width, 3)]


def _bottleneck(inside: int, width: int, stride: int) -> list[nn.Module]:
    narrow = max(1, width // 4)
    first = [_conv(inside, narrow, 1), nn.BatchNorm2d(narrow), nn.ReLU()]
    second = [_conv(narrow, narrow, 3, stride), nn.BatchNorm2d(narrow), nn.ReLU()]
    return [*first, *second, _conv(narrow, width, 1), nn.BatchNorm2d(width)]


def _separable(inside: int, width: int, stride: int) -> list[nn.Module]:
    first = [_conv(inside, inside, 3, stride, groups=inside), _conv(inside, width, 1)]
    second = [_conv(width, width, 3, groups=width), _conv(width, width, 1)]
    return [*first, nn.BatchNorm2d(width), nn.GELU(), *second, nn.BatchNorm2d(width)]


def _single(inside: int, width: int, stride: int) -> list[nn.Module]:
    return [_conv(inside, width, 3, stride), nn.BatchNorm2d(width)]


KINDS = {
    "basic": _basic,
    "before": _before,
    "bottleneck": _bottleneck,
    "separable": _separable,
    "single": _single,
}
NAMES = [f"{kind}-{share}" for kind, share in product(KINDS, SHARES)]


class Block(nn.Module):
    """x + f(x), then ReLU but for blocks that have it before."""

    def __init__(self, kind: str, inside: int, width: int, stride: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(*KINDS[kind](inside, width, stride))
        same = inside == width and stride == 1
        self.shortcut = nn.Identity() if same else _conv(inside, width, 1, stride)
        self.last = nn.Identity() if kind == "before" else nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.shortcut(x) + self.branch(x))


class Network(nn.Module):
    """Three stages of three blocks; the second and third halve the side."""

    def __init__(self, kind: str, widths: list[int], classes: int = 10) -> None:
        super().__init__()
        self.input_size = (3, 8, 8)
        self.stem = nn.Sequential(_conv(3, widths[0], 3), nn.BatchNorm2d(widths[0]), nn.ReLU())
        blocks, inside = [], widths[0]
        for stage, width in enumerate(widths):
            for number in range(BLOCKS):
                stride = 2 if stage and not number else 1
                blocks.append(Block(kind, inside, width, stride))
                inside = width
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inside, classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(images)).mean((2, 3)))


def build(name: str) -> Network:
    """The network of this name whose number of parameters comes nearest to `PARAMETERS`."""
    kind, share = name.split("-")

    def widths(base: int) -> list[int]:
        return [max(4, round(base * each)) for each in SHARES[share]]

    def parameters(base: int) -> int:
        with torch.device("meta"):
            return sum(p.numel() for p in Network(kind, widths(base)).parameters())

    # More width is more parameters.
    above = bisect_left(range(3, 200), PARAMETERS, key=parameters) + 3
    nearest = min((above - 1, above), key=lambda base: abs(parameters(base) - PARAMETERS))
    return Network(kind, widths(nearest))
