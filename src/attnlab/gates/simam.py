"""SimAM, a simple attention module without parameters (Yang et al., ICML 2021).

The further a pixel is from the mean of its channel, measured by the channel's variance v, the more
it stands out: `gate = σ((x − mean)² / (4 (v + λ)) + 1/2)`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnlab._errors import OptionError
from attnlab._types import Maps
from attnlab.gates._gate import ANY_RANK, BranchGate
from attnlab.gates._pooling import applied, as_map, in_pieces, pixel_count, spatial_mean
from attnlab.gates._shared import Strength
from attnlab.gates._statistics import degrees_of_freedom


def _distinctness(
    features: Tensor, mean: Tensor, regularization: float, divisor: int
) -> tuple[Tensor, Tensor]:
    squares = (features - mean[:, :, None, None]).square_()
    variance = squares.sum(dim=(2, 3)) / divisor
    slope = 1 / (4 * (variance + regularization))
    return squares.mul_(slope[:, :, None, None]).add_(0.5).sigmoid_(), variance


class _Distinctness(torch.autograd.Function):
    """One tensor of the size of the map forward, which is the gate; the moments come along."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        features: Tensor, regularization: float, divisor: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        mean = spatial_mean(features)
        gate, variance = in_pieces(
            lambda piece, centre: _distinctness(piece, centre, regularization, divisor),
            features,
            mean,
        )
        return gate, mean, variance

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Tensor, float, int], output: tuple[Tensor, Tensor, Tensor]
    ) -> None:
        ctx.save_for_backward(inputs[0], *output)
        ctx.regularization, ctx.divisor = inputs[1:]

    @staticmethod
    def backward(
        ctx: Any, grad: Tensor, grad_mean: Tensor, grad_variance: Tensor
    ) -> tuple[Tensor, None, None]:
        features, gate, mean, variance = ctx.saved_tensors
        slope = 1 / (4 * (variance + ctx.regularization))
        centred = features - mean[:, :, None, None]
        # Of the value before the sigmoid, then of the variance and of the mean.
        through = grad * gate * (1 - gate)
        pull = through * centred
        of_variance = grad_variance - 4 * slope**2 * (pull * centred).sum(dim=(2, 3))
        of_mean = grad_mean - 2 * slope * pull.sum(dim=(2, 3))
        share = of_mean / (features.shape[2] * features.shape[3])
        # The variance does not change with the mean: the centred values sum to zero.
        along = (2 / ctx.divisor * of_variance)[:, :, None, None]
        direct = torch.addcmul(share[:, :, None, None], centred, along)
        return torch.addcmul(direct, pull, (2 * slope)[:, :, None, None]), None, None


class SimpleAttention(BranchGate):
    """SimAM gate, between σ(1/2) = 0.62246 and 1.

    The variance is unbiased, as in the authors' code and in the listing of the paper; the paper's
    equation divides by the number of pixels: `unbiased=False`. Ours: a map of one pixel has
    variance 0. It has no parameters; for `start="identity"` it gets one, `strength`.
    """

    ranks = ANY_RANK

    def __init__(self, channels: int, regularization: float = 1e-4, unbiased: bool = True) -> None:
        super().__init__(channels)
        if regularization <= 0:
            raise OptionError(
                f"Expected regularization, the paper's λ, to be above 0 but got {regularization}."
            )
        self.regularization = regularization
        self.unbiased = unbiased
        self.strength = Strength()

    def forward(self, branch: Maps) -> Maps:
        self.check_input(branch)
        # Centring cancels leading digits, and squares leave the range of float16.
        seen = as_map(branch.to(torch.promote_types(branch.dtype, torch.float32)))
        divisor = degrees_of_freedom(seen) if self.unbiased else pixel_count(seen)
        gate, _, _ = applied(_Distinctness, seen, self.regularization, divisor)
        return self.strength(gate.to(branch.dtype)).view_as(branch)

    def start_constant(self) -> float:
        self.strength.start_zero()
        return 1.0

    def extra_repr(self) -> str:
        return f"{self.channels}, regularization={self.regularization}"
