"""The contestants of `operators`: the aggregations alone, and whole layers."""

from __future__ import annotations

from collections.abc import Callable

import torch
from timm.layers.cond_conv2d import CondConv2d
from timm.layers.halo_attn import HaloAttn
from timm.layers.lambda_layer import LambdaLayer
from torch import Tensor, nn
from torchvision.ops import DeformConv2d

from attnlab.evolution import (
    Involution2d,
    LocalAttention2d,
    Window,
    av,
    local_attention,
    use_native,
)
from attnlab.evolution.device.peers import unfold_attention, unfold_involution
from benchmarks._common import forward_or_both

Shape = tuple[int, int, int, int]
"""Batch, channels, height and width, window."""
Runs = tuple[Callable[[], object], Callable[[], object]]
"""Forward without gradients; forward with backward."""


def _both(function: Callable[..., Tensor], inputs: tuple[Tensor, ...], slope: Tensor) -> Runs:
    """Return the two runs of a function: without gradients, and with backward to all inputs."""
    leaves = tuple(t.detach().requires_grad_() for t in inputs)

    def clear() -> None:
        for leaf in leaves:
            leaf.grad = None

    return (
        forward_or_both(lambda: function(*inputs), False),
        forward_or_both(lambda: function(*leaves), True, slope, clear),
    )


def _of_layer(layer: nn.Module, x: Tensor) -> Runs:
    """Return the two runs of a module: backward goes to the input and to its parameters."""
    layer.train()
    with torch.no_grad():
        slope = torch.randn_like(layer(x))
    forward, both = _both(layer, (x,), slope)

    def both_and_clear() -> None:
        both()
        layer.zero_grad(set_to_none=True)

    return forward, both_and_clear


def _in_torch(runs: Runs) -> Runs:
    """Return the same two runs on the pure-torch path."""

    def without_native(run: Callable[[], object]) -> Callable[[], object]:
        def inner() -> object:
            with use_native(False):
                return run()

        return inner

    return without_native(runs[0]), without_native(runs[1])


class UnfoldInvolution(nn.Module):
    """Our layer with the aggregation of the authors' portable code."""

    def __init__(self, channels: int, size: int) -> None:
        super().__init__()
        self.layer, self.size = Involution2d(channels, size), size

    def forward(self, x: Tensor) -> Tensor:
        return unfold_involution(self.layer.kernel(x).maps, x, self.size)


class UnfoldAttention(nn.Module):
    """1×1 projections around `unfold_attention`."""

    def __init__(self, channels: int, size: int, heads: int) -> None:
        super().__init__()
        self.project = nn.Conv2d(channels, 3 * channels, 1, bias=False)
        self.size, self.heads = size, heads

    def forward(self, x: Tensor) -> Tensor:
        return unfold_attention(*self.project(x).chunk(3, 1), self.heads, self.size)


class Deformable(nn.Module):
    """Modulated deformable 3×3 convolution with torchvision's operator."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.offsets = nn.Conv2d(channels, 27, 3, padding=1)
        self.convolution = DeformConv2d(channels, channels, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        offsets, mask = self.offsets(x).split((18, 9), dim=1)
        return self.convolution(x, offsets, mask.sigmoid())


class RoutedCondConv(nn.Module):
    """timm's layer with the routing that its networks put before it."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layer = CondConv2d(channels, channels, 3, padding=1)
        self.route = nn.Linear(self.layer.in_channels, self.layer.num_experts)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x, self.route(x.mean((2, 3))).sigmoid())


def cores(shape: Shape) -> dict[str, dict[str, Runs]]:
    """Return the aggregations alone: involution, and attention from query, key and value."""
    batch, channels, size, kernel = shape
    groups, heads, window = channels // 16, channels // 32, Window.centred(kernel)
    x, key, value, slope = torch.randn(4, batch, channels, size, size)
    given = (torch.randn(batch, groups, window.taps, size, size), x)
    projected = (x, key, value)
    involution = _both(lambda maps, x: av(maps, x, window), given, slope)
    attention = _both(lambda q, k, v: local_attention(q, k, v, heads, window), projected, slope)
    depthwise = nn.Conv2d(channels, channels, kernel, padding=kernel // 2, groups=channels)
    return {
        "involution": {
            "unfold": _both(lambda m, x: unfold_involution(m, x, kernel), given, slope),
            "attnlab": involution,
            "attnlab, pure torch": _in_torch(involution),
            "depthwise convolution": _of_layer(depthwise, x),
        },
        "attention": {
            "unfold": _both(
                lambda q, k, v: unfold_attention(q, k, v, heads, kernel), projected, slope
            ),
            "attnlab": attention,
            "attnlab, pure torch": _in_torch(attention),
        },
    }


def layers(shape: Shape, peers: bool) -> dict[str, Runs]:
    """Return whole layers, with their projections; `peers` adds those of timm and torchvision."""
    batch, c, size, kernel = shape
    heads = c // 32
    block = 8 if size % 8 == 0 else 7
    found: dict[str, nn.Module] = {
        "convolution 3×3": nn.Conv2d(c, c, 3, padding=1, bias=False),
        "involution": Involution2d(c, kernel),
        "attention": LocalAttention2d(c, c, kernel, heads),
        "attention, relative": LocalAttention2d(c, c, kernel, heads, "relative"),
        "timm HaloAttn": HaloAttn(c, num_heads=heads, block_size=block, halo_size=kernel // 2),
    }
    if peers:
        found |= {
            "depthwise convolution": nn.Conv2d(
                c, c, kernel, padding=kernel // 2, groups=c, bias=False
            ),
            "unfold involution": UnfoldInvolution(c, kernel),
            "unfold attention": UnfoldAttention(c, kernel, heads),
            "timm LambdaLayer": LambdaLayer(c, r=kernel),
            "DCNv2 3×3": Deformable(c),
            "timm CondConv 3×3": RoutedCondConv(c),
        }
    x = torch.randn(batch, c, size, size)
    return {name: _of_layer(layer, x) for name, layer in found.items()}
