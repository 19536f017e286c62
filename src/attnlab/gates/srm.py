"""Style-based Recalibration Module (Lee et al., ICCV 2019).

`gate = σ(BN(u ⊙ mean + v ⊙ std))` with `std = √(variance + 1e-5)` over space, unbiased variance.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from attnlab._types import ChannelGate, Maps, Vector
from attnlab.gates._gate import ANY_RANK, Activation, VectorGate
from attnlab.gates._shared import as_channel_gate, check_batch_statistics
from attnlab.gates._statistics import spatial_moments

EPSILON = 1e-5


class StyleRecalibration(VectorGate):
    """SRM gate. `style` starts at 0, so that the gate is exactly 0.5 before the first update.

    Ours: a map of one pixel has variance 0 (the unbiased estimate is undefined there). On a learned
    vector the BatchNorm is its affine part alone, with fixed statistics 0 and 1.
    """

    ranks = ANY_RANK

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.style = nn.Parameter(torch.zeros(channels, 2))
        self.norm = nn.BatchNorm1d(channels)

    def forward(self, branch: Maps) -> ChannelGate:
        self.check_input(branch)
        check_batch_statistics(
            self.norm, branch.shape[0], type(self).__name__, "Use a batch of at least 2"
        )
        mean, variance = spatial_moments(branch)
        return as_channel_gate(torch.sigmoid(self.norm(self._integrate(mean, variance))), branch)

    def of_vector(self, vector: Vector, activation: Activation) -> Vector:
        style = self._integrate(vector, torch.zeros_like(vector))
        return activation(torch.addcmul(self.norm.bias, self.norm.weight, style))

    def start_constant(self) -> float:
        nn.init.zeros_(self.style)
        self.norm.reset_parameters()
        return 0.5

    def _integrate(self, mean: Tensor, variance: Tensor) -> Tensor:
        deviation = torch.sqrt(variance + EPSILON)
        return self.style[:, 0] * mean + self.style[:, 1] * deviation
