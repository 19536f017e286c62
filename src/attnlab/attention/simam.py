"""SimAM, a simple attention module without parameters (Yang et al., ICML 2021).

The further a pixel is from the mean of its channel, measured by the channel's variance v, the more
it stands out: `gate = σ((x − mean)² / (4 (v + λ)) + 1/2)`.
"""

from __future__ import annotations

import torch

from attnlab._errors import OptionError
from attnlab._types import Maps
from attnlab.attention._gate import ANY_RANK, BranchGate
from attnlab.attention._moments import degrees_of_freedom, spatial_moments
from attnlab.attention._pooling import as_map, pixel_count
from attnlab.attention._strength import Strength


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
        mean, variance = spatial_moments(seen)
        if not self.unbiased:
            variance = variance * (degrees_of_freedom(seen) / pixel_count(seen))
        slope = (1 / (4 * (variance + self.regularization)))[:, :, None, None]
        distance = (seen - mean[:, :, None, None]).square()
        gate = torch.sigmoid(distance * slope + 0.5).to(branch.dtype)
        return self.strength(gate).view_as(branch)

    def start_constant(self) -> float:
        self.strength.start_zero()
        return 1.0

    def extra_repr(self) -> str:
        return f"{self.channels}, regularization={self.regularization}"
