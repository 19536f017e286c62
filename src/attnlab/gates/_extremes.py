"""Mean and maximum together, over space or over channels, with gradients of few temporaries.

As with `torch.amax`, ties share the gradient. Torch finds and counts them with a boolean mask,
whose sum alone takes many times as long as the forward pass on a CPU; an arithmetic indicator does
not.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from attnlab._types import Features, Vector
from attnlab.gates._autograd import applied
from attnlab.gates._pieces import in_pieces
from attnlab.gates._pooling import over_space, spatial_mean

SpatialMap = Float[Tensor, "batch 1 height width"]


def _share_at_maximum(
    values: Tensor, maximum: Tensor, grad: Tensor, rest: Tensor, dims: tuple[int, ...]
) -> Tensor:
    """`rest` everywhere, plus `grad` divided among the places where `values` is `maximum`."""
    indicator = torch.sub(values, maximum).sign_().add_(1)
    count = indicator.sum(dim=dims, keepdim=True)
    if torch.is_grad_enabled():  # for a second derivative
        return torch.addcmul(rest, indicator, grad / count)
    return indicator.mul_(grad / count).add_(rest)


class _SpatialMeanMax(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(features: Tensor) -> tuple[Tensor, Tensor]:
        return spatial_mean(features), over_space(torch.amax, features)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(inputs[0], output[1])

    @staticmethod
    def backward(ctx: Any, grad_mean: Tensor, grad_max: Tensor) -> Tensor:
        features, maximum = (t.detach() for t in ctx.saved_tensors)
        share = grad_mean / (features.shape[2] * features.shape[3])
        maximum, grad, rest = (t[:, :, None, None] for t in (maximum, grad_max, share))
        return _share_at_maximum(features, maximum, grad, rest, (2, 3))


def _spatial_dot(first: Tensor, second: Tensor) -> tuple[Tensor]:
    return ((first * second).sum(dim=(2, 3)),)


def _scaled_mean_max(features: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    scaled = features * scale[:, :, None, None]
    return scaled.mean(dim=1, keepdim=True), scaled.amax(dim=1, keepdim=True)


class _ScaledChannelMeanMax(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(features: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        mean, maximum = in_pieces(_scaled_mean_max, features, scale)
        return mean, maximum

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Tensor, Tensor], output: tuple[Tensor, Tensor]
    ) -> None:
        ctx.save_for_backward(*inputs, output[1])

    @staticmethod
    def backward(ctx: Any, grad_mean: Tensor, grad_max: Tensor) -> tuple[Tensor, Tensor]:
        features, scale, maximum = ctx.saved_tensors
        factor = scale[:, :, None, None]
        scaled = features.detach() * factor.detach()
        rest = grad_mean / features.shape[1]
        grad = _share_at_maximum(scaled, maximum.detach(), grad_max, rest, (1,))
        (grad_scale,) = in_pieces(_spatial_dot, grad, features)
        return grad * factor, grad_scale


def spatial_mean_max(features: Features) -> tuple[Vector, Vector]:
    """The mean and the maximum of each channel over space."""
    return applied(_SpatialMeanMax, features)


def scaled_channel_mean_max(features: Features, scale: Vector) -> tuple[SpatialMap, SpatialMap]:
    """The mean and the maximum over the channels of `scale ⊗ features`, at every pixel."""
    return applied(_ScaledChannelMeanMax, features, scale)
