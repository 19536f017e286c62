"""What the contestants of `operators.py` are: unfold, whole layers, others' layers."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from attnlab.evolution import (
    Involution2d,
    LocalAttention2d,
    Window,
    av,
    local_attention,
    use_native,
)
from attnlab.evolution.device.peers import unfold_attention, unfold_involution

Shape = tuple[int, int, int, int]
"""Batch, channels, height and width, window."""
Runs = tuple[Callable[[], object], Callable[[], object]]
"""Forward without gradients; forward with backward."""


def forward_and_backward(
    function: Callable[..., Tensor], inputs: tuple[Tensor, ...], gradient: Tensor
) -> Runs:
    """The two runs of a contestant: without gradients, and with backward to all inputs."""

    def forward() -> object:
        with torch.no_grad():
            return function(*inputs)

    leaves = tuple(t.detach().requires_grad_() for t in inputs)

    def both() -> object:
        function(*leaves).backward(gradient)
        for leaf in leaves:
            leaf.grad = None
        return None

    return forward, both


def of_layer(layer: nn.Module, x: Tensor) -> Runs:
    """As above for a module: backward to the input and to its parameters."""
    layer.train()
    with torch.no_grad():
        gradient = torch.randn_like(layer(x))
    forward, both = forward_and_backward(layer, (x,), gradient)

    def both_and_clear() -> object:
        both()
        layer.zero_grad(set_to_none=True)
        return None

    return forward, both_and_clear


def in_torch(runs: Runs) -> Runs:
    """The same two runs on the pure-torch path."""

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
        from torchvision.ops import DeformConv2d

        self.offsets = nn.Conv2d(channels, 27, 3, padding=1)
        self.convolution = DeformConv2d(channels, channels, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        offsets, mask = self.offsets(x).split((18, 9), dim=1)
        return self.convolution(x, offsets, mask.sigmoid())


class RoutedCondConv(nn.Module):
    """timm's layer with the routing that its networks put before it."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.route = nn.Linear(layer.in_channels, layer.num_experts)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x, self.route(x.mean((2, 3))).sigmoid())


def cores(shape: Shape) -> dict[str, dict[str, Runs]]:
    """The aggregations alone: involution, and attention from query, key and value."""
    batch, channels, size, kernel = shape
    groups, heads, window = channels // 16, channels // 32, Window.centred(kernel)
    x, key, value, gradient = torch.randn(4, batch, channels, size, size)
    maps = torch.randn(batch, groups, window.taps, size, size)

    def involution(maps: Tensor, x: Tensor) -> Tensor:
        return av(maps, x, window)

    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return local_attention(query, key, value, heads, window)

    depthwise = nn.Conv2d(channels, channels, kernel, padding=kernel // 2, groups=channels)
    return {
        "involution": {
            "unfold": forward_and_backward(
                lambda m, x: unfold_involution(m, x, kernel), (maps, x), gradient
            ),
            "attnlab": forward_and_backward(involution, (maps, x), gradient),
            "attnlab, pure torch": in_torch(forward_and_backward(involution, (maps, x), gradient)),
            "depthwise convolution": of_layer(depthwise, x),
        },
        "attention": {
            "unfold": forward_and_backward(
                lambda q, k, v: unfold_attention(q, k, v, heads, kernel), (x, key, value), gradient
            ),
            "attnlab": forward_and_backward(attention, (x, key, value), gradient),
            "attnlab, pure torch": in_torch(
                forward_and_backward(attention, (x, key, value), gradient)
            ),
        },
    }


def layers(shape: Shape, peers: bool) -> dict[str, Runs]:
    """Whole layers, with their projections; `peers` are also those of timm and torchvision."""
    batch, channels, size, kernel = shape
    heads = channels // 32
    found: dict[str, nn.Module] = {
        "convolution 3×3": nn.Conv2d(channels, channels, 3, padding=1, bias=False),
        "involution": Involution2d(channels, kernel),
        "attention": LocalAttention2d(channels, channels, kernel, heads),
        "attention, relative": LocalAttention2d(channels, channels, kernel, heads, "relative"),
        "timm HaloAttn": _halo(channels, size, heads, kernel),
    }
    if peers:
        from timm.layers.cond_conv2d import CondConv2d
        from timm.layers.lambda_layer import LambdaLayer

        found["depthwise convolution"] = nn.Conv2d(
            channels, channels, kernel, padding=kernel // 2, groups=channels, bias=False
        )
        found["unfold involution"] = UnfoldInvolution(channels, kernel)
        found["unfold attention"] = UnfoldAttention(channels, kernel, heads)
        found["timm LambdaLayer"] = LambdaLayer(channels, r=kernel)
        found["DCNv2 3×3"] = Deformable(channels)
        found["timm CondConv 3×3"] = RoutedCondConv(CondConv2d(channels, channels, 3, padding=1))
    x = torch.randn(batch, channels, size, size)
    return {name: of_layer(layer, x) for name, layer in found.items()}


def _halo(channels: int, size: int, heads: int, kernel: int) -> nn.Module:
    from timm.layers.halo_attn import HaloAttn

    block = 8 if size % 8 == 0 else 7
    return HaloAttn(channels, num_heads=heads, block_size=block, halo_size=kernel // 2)
