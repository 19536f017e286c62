"""Switchable Excitation Module, SEM (Zhong et al., 2022).

A learned switch `g = σ(V z + d)` of three values weighs three excitations of the channel means z:
`gate = σ(g₀ SE(z)) σ(g₁ ECA(z)) σ(g₂ (w ⊙ z + b))`.
"""

from __future__ import annotations

import torch
from torch import nn

from attnlab._types import ChannelGate, Maps, Vector
from attnlab.gates._gate import ANY_RANK, Activation, VectorGate
from attnlab.gates._pooling import spatial_mean
from attnlab.gates._shared import Excitation, as_channel_gate, hidden_width
from attnlab.gates.eca import channel_convolution


class SwitchableExcitation(VectorGate):
    """SEM gate. The affine excitation starts at w = 0, b = −1."""

    ranks = ANY_RANK

    def __init__(self, channels: int, reduction: int = 16, kernel_size: int | None = None) -> None:
        super().__init__(channels)
        self.switch = nn.Linear(channels, 3)
        self.excitation = Excitation(
            channels, hidden_width(channels, reduction), channels, bias=True
        )
        self.conv = channel_convolution(channels, kernel_size)
        self.weight = nn.Parameter(torch.zeros(channels))
        self.bias = nn.Parameter(torch.full((channels,), -1.0))

    def forward(self, branch: Maps) -> ChannelGate:
        self.check_input(branch)
        return as_channel_gate(self.of_vector(spatial_mean(branch), self.squash), branch)

    def of_vector(self, vector: Vector, activation: Activation) -> Vector:
        # The switch keeps its sigmoid: it is a weight, not the gate.
        full, local, affine = torch.sigmoid(self.switch(vector)).split(1, dim=1)
        from_full = activation(full * self.excitation(vector))
        from_local = activation(local * self.conv(vector.unsqueeze(1)).squeeze(1))
        from_affine = activation(affine * (self.weight * vector + self.bias))
        return from_full * from_local * from_affine

    def start_constant(self) -> float:
        self.excitation.start_zero()
        nn.init.zeros_(self.conv.weight)
        nn.init.zeros_(self.weight)
        # Not −1: the switch depends on the input, and only zero is the same for each of its values.
        nn.init.zeros_(self.bias)
        return 0.125
