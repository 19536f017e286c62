"""Squeeze-and-Excitation (Hu et al., CVPR 2018).

`gate = σ(W₂ ReLU(W₁ z + b₁) + b₂)`, with z the mean of each channel and hidden width round(C / 16).
"""

from __future__ import annotations

import torch

from attnlab._types import ChannelGate, Features, Vector
from attnlab.attention._gate import Activation, VectorGate
from attnlab.attention._pooling import spatial_mean
from attnlab.attention._shared import Excitation, as_channel_gate, hidden_width


class SqueezeExcitation(VectorGate):
    """SE gate. Both layers have a bias: only that reproduces the papers' parameter counts."""

    def __init__(self, channels: int, reduction: int = 16, bias: bool = True) -> None:
        super().__init__(channels)
        self.excitation = Excitation(channels, hidden_width(channels, reduction), channels, bias)

    def forward(self, branch: Features) -> ChannelGate:
        self.check_input(branch)
        return as_channel_gate(self.of_vector(spatial_mean(branch), torch.sigmoid), branch)

    def of_vector(self, vector: Vector, activation: Activation) -> Vector:
        return activation(self.excitation(vector))

    def start_constant(self) -> float:
        self.excitation.start_zero()
        return 0.5
