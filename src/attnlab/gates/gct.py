"""Gated Channel Transformation (Yang et al., CVPR 2020).

The norm of each channel over space, `e = α ⊙ √(Σ x² + ε)`, relative to the other channels' norms,
decides: `gate = 1 + tanh(γ ⊙ e / √(mean_c e² + ε) + β)`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from attnlab._types import ChannelGate, Maps, Vector
from attnlab.gates._gate import ANY_RANK, Activation, VectorGate
from attnlab.gates._shared import as_channel_gate
from attnlab.gates._statistics import spatial_squares

EPSILON = 1e-5


def one_plus_tanh(x: Tensor) -> Tensor:
    """GCT's last function, between 0 and 2."""
    return 1 + torch.tanh(x)


def channel_energy(features: Maps) -> Vector:
    """√(Σ x² + ε) of each channel over space; half precision is summed in float32."""
    wide = torch.promote_types(features.dtype, torch.float32)
    same = features if features.dtype == wide else features.to(wide)
    return torch.sqrt(spatial_squares(same) + EPSILON)


class GatedChannelTransformation(VectorGate):
    """GCT gate with the paper's l2 norm. Starts at γ = β = 0, hence at the constant 1.

    On a learned vector, ASR, the map has one pixel.
    """

    ranks = ANY_RANK

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.squash = one_plus_tanh
        self.alpha = nn.Parameter(torch.empty(channels))
        self.gamma = nn.Parameter(torch.empty(channels))
        self.beta = nn.Parameter(torch.empty(channels))
        self.start_constant()

    def forward(self, branch: Maps) -> ChannelGate:
        self.check_input(branch)
        return as_channel_gate(self._of_energy(channel_energy(branch), self.squash), branch)

    def of_vector(self, vector: Vector, activation: Activation) -> Vector:
        return self._of_energy(torch.sqrt(vector.square() + EPSILON), activation)

    def start_constant(self) -> float:
        nn.init.ones_(self.alpha)
        nn.init.zeros_(self.gamma)
        nn.init.zeros_(self.beta)
        return 1.0

    def _of_energy(self, energy: Vector, activation: Activation) -> Vector:
        embedded = energy * self.alpha
        size = torch.sqrt(embedded.square().mean(dim=1, keepdim=True) + EPSILON)
        return activation(torch.addcmul(self.beta, self.gamma, embedded / size))
