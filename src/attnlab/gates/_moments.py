"""Mean, variance and sum of squares over space."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from attnlab._types import Maps, Vector
from attnlab.gates._autograd import applied
from attnlab.gates._pieces import in_pieces
from attnlab.gates._pooling import as_map, is_channels_last, spatial_mean
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
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(inputs[0], output[0])

    @staticmethod
    def backward(ctx: Any, grad_mean: Tensor, grad_variance: Tensor) -> Tensor:
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
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: object) -> None:  # noqa: ARG004
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (features,) = ctx.saved_tensors
        return features * (2 * grad)[:, :, None, None]


def spatial_squares(features: Maps) -> Vector:
    """The sum of the squares of each channel over space."""
    return applied(_Squares, as_map(features))


def degrees_of_freedom(features: Tensor) -> int:
    """height · width − 1, and 1 for one pixel, whose variance is then 0 instead of undefined."""
    return cast("int", torch.sym_max(features.shape[2] * features.shape[3] - 1, 1))


def spatial_moments(features: Maps) -> tuple[Vector, Vector]:
    """The mean and the unbiased variance of each channel over space."""
    return applied(_Moments, as_map(features))
