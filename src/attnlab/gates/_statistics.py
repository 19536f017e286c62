"""Moments and maxima over space or over channels, with gradients of few temporaries.

As with `torch.amax`, ties share the gradient of a maximum. Torch finds and counts them with a
boolean mask, whose sum alone takes many times as long as the forward pass on a CPU; an arithmetic
indicator does not.
"""

from __future__ import annotations

from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor

from attnlab._types import Features, Maps, Saved, Vector
from attnlab.gates._pooling import (
    applied,
    as_map,
    in_pieces,
    is_channels_last,
    over_space,
    spatial_mean,
)
from attnlab.gates._shared import scaled_and_shifted


class _Moments(torch.autograd.Function):
    """Two passes; the gradient `a ⊙ x + b` is one pass.

    On a CPU torch.var_mean takes three to ten times as long, and sums of squares without centring
    lose the variance of a channel whose mean is large.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(features: Tensor) -> tuple[Tensor, Tensor]:
        mean = spatial_mean(features)
        (squares,) = in_pieces(_centred_squares, features, mean)
        return mean, squares / degrees_of_freedom(features)

    @staticmethod
    def setup_context(ctx: Saved, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(inputs[0], output[0])

    @staticmethod
    def backward(ctx: Saved, grad_mean: Tensor, grad_variance: Tensor) -> Tensor:
        features, mean = ctx.saved_tensors
        slope = grad_variance * (2 / degrees_of_freedom(features))
        offset = grad_mean / (features.shape[2] * features.shape[3]) - slope * mean
        return scaled_and_shifted(features, slope[:, :, None, None], offset[:, :, None, None])


def _centred_squares(features: Tensor, mean: Tensor) -> tuple[Tensor]:
    return ((features - mean[:, :, None, None]).square_().sum(dim=(2, 3)),)


class _Squares(torch.autograd.Function):
    """The gradient `2 grad ⊙ x` is one pass.

    Torch's norm needs no temporary, but in channels last it takes ten times as long as one.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(features: Tensor) -> Tensor:
        if not is_channels_last(features):
            return torch.linalg.vector_norm(features, dim=(2, 3)).square()
        (total,) = in_pieces(lambda piece: ((piece * piece).sum(dim=(2, 3)),), features)
        return total

    @staticmethod
    def setup_context(ctx: Saved, inputs: tuple[Tensor], output: object) -> None:  # noqa: ARG004
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx: Saved, grad: Tensor) -> Tensor:
        (features,) = ctx.saved_tensors
        return features * (2 * grad)[:, :, None, None]


def spatial_squares(features: Maps) -> Vector:
    """The sum of the squares of each channel over space."""
    return applied(_Squares, as_map(features))


def degrees_of_freedom(features: Tensor) -> int:
    """height · width − 1, and 1 for one pixel, whose variance is then 0 instead of undefined."""
    free = features.shape[2] * features.shape[3] - 1
    if torch._C._is_tracing():  # sizes are tensors then, which sym_max does not take
        return cast("int", torch.as_tensor(free).clamp_min(1))
    return cast("int", torch.sym_max(free, 1))


def spatial_moments(features: Maps) -> tuple[Vector, Vector]:
    """The mean and the unbiased variance of each channel over space."""
    return applied(_Moments, as_map(features))


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
    def setup_context(ctx: Saved, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(inputs[0], output[1])

    @staticmethod
    def backward(ctx: Saved, grad_mean: Tensor, grad_max: Tensor) -> Tensor:
        features, maximum = (t.detach() for t in ctx.saved_tensors)
        share = grad_mean / (features.shape[2] * features.shape[3])
        maximum, grad, rest = (t[:, :, None, None] for t in (maximum, grad_max, share))
        return _share_at_maximum(features, maximum, grad, rest, (2, 3))


def _spatial_dot(first: Tensor, second: Tensor) -> tuple[Tensor]:
    return ((first * second).sum(dim=(2, 3)),)


def _scaled_mean_max(features: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    scaled = features * scale.view(*scale.shape, 1, 1)  # a third of the time of [:, :, None, None]
    return scaled.mean(dim=1, keepdim=True), scaled.amax(dim=1, keepdim=True)


class _ScaledChannelMeanMax(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(features: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        mean, maximum = in_pieces(_scaled_mean_max, features, scale)
        return mean, maximum

    @staticmethod
    def setup_context(
        ctx: Saved, inputs: tuple[Tensor, Tensor], output: tuple[Tensor, Tensor]
    ) -> None:
        ctx.save_for_backward(*inputs, output[1])

    @staticmethod
    def backward(ctx: Saved, grad_mean: Tensor, grad_max: Tensor) -> tuple[Tensor, Tensor]:
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
