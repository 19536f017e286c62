"""`spanned_av` and its backward pass for a whole batch, on any kernels of the primitives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor
from torch.nn import functional as F
from torch.nn.grad import conv1d_input, conv1d_weight

if TYPE_CHECKING:
    from attnlab.evolution._implementation import Implementation


def maps_of(features: Tensor, weight: Tensor, bias: Tensor | None, groups: int) -> Tensor:
    """(B, groups, taps, *out): `weight` (groups·taps, D) times features (B, D, *out)."""
    maps = F.conv1d(features.flatten(2), weight.unsqueeze(2), bias)
    return maps.unflatten(2, features.shape[2:]).unflatten(1, (groups, -1))


def forward(
    kernels: Implementation,
    features: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    groups: int,
    window: list[int],
) -> Tensor:
    return kernels.av(maps_of(features, weight, bias, groups), x, window)


def backward(
    kernels: Implementation,
    grad: Tensor,
    features: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    groups: int,
    window: list[int],
) -> list[Tensor]:
    """Gradients of features, x, weight and, if there is one, bias."""
    maps = maps_of(features, weight, bias, groups)
    to_x = kernels.sc(maps, grad, list(x.shape[2:]), window)
    del maps
    to_maps = kernels.qk(grad, x, groups, window).flatten(1, 2).flatten(2)
    flat, kernel = features.flatten(2), weight.unsqueeze(2)
    to_features = conv1d_input(flat.shape, kernel, to_maps).unflatten(2, features.shape[2:])
    to_weight = conv1d_weight(flat, kernel.shape, to_maps).squeeze(2)
    found = [to_features, to_x, to_weight]
    return found if bias is None else [*found, to_maps.sum((0, 2))]
