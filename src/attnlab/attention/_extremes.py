"""Mean and maximum together, over space or over channels, with gradients that need one temporary.

Torch spreads the gradient of `amax` over all ties through a mask, a count and a product, each as
large as the map. Here it goes to the first maximum, which is found in the backward pass only.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from attnlab._types import Features, Vector
from attnlab.attention._pooling import spatial_mean


class _SpatialMeanMax(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(features: Tensor) -> tuple[Tensor, Tensor]:
        return spatial_mean(features), features.amax(dim=(2, 3))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: object) -> None:  # noqa: ARG004
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx: Any, grad_mean: Tensor, grad_max: Tensor) -> Tensor:
        (features,) = ctx.saved_tensors
        height, width = features.shape[2:]
        first = features.flatten(2).argmax(dim=2, keepdim=True)
        share = (grad_mean / (height * width))[:, :, None]
        spread = torch.zeros_like(features).flatten(2) + share
        return spread.scatter_add(2, first, grad_max[:, :, None]).unflatten(2, (height, width))


class _ScaledChannelMeanMax(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(features: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        scaled = features * scale[:, :, None, None]
        return scaled.mean(dim=1, keepdim=True), scaled.amax(dim=1, keepdim=True)

    @staticmethod
    def setup_context(
        ctx: Any,
        inputs: tuple[Tensor, Tensor],
        output: object,  # noqa: ARG004
    ) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad_mean: Tensor, grad_max: Tensor) -> tuple[Tensor, Tensor]:
        features, scale = ctx.saved_tensors
        factor = scale[:, :, None, None]
        first = (features * factor).argmax(dim=1, keepdim=True)
        share = grad_mean / features.shape[1]
        at_first = scale.gather(1, first.flatten(1)).view_as(grad_max)
        grad_features = (factor * share).scatter_add(1, first, grad_max * at_first)
        from_mean = torch.matmul(features.flatten(2), share.flatten(1)[:, :, None])[:, :, 0]
        from_max = (grad_max * features.gather(1, first)).flatten(1)
        return grad_features, from_mean.scatter_add(1, first.flatten(1), from_max)


def spatial_mean_max(features: Features) -> tuple[Vector, Vector]:
    """The mean and the maximum of each channel over space."""
    return _SpatialMeanMax.apply(features)


def scaled_channel_mean_max(
    features: Features, scale: Vector
) -> tuple[Float[Tensor, "batch 1 height width"], Float[Tensor, "batch 1 height width"]]:
    """The mean and the maximum over the channels of `scale ⊗ features`, at every pixel."""
    return _ScaledChannelMeanMax.apply(features, scale)
