"""Instance Enhancement, the gate inside IEBN (Liang et al., AAAI 2020).

`gate = σ(w ⊙ z + b)`, one slope and one offset per channel mean z.
"""

from __future__ import annotations

import math

import torch
from torch import nn

from attnlab._types import ChannelGate, Maps, Vector
from attnlab.gates._gate import ANY_RANK, Activation, VectorGate
from attnlab.gates._pooling import spatial_mean
from attnlab.gates._shared import as_channel_gate


class InstanceEnhancement(VectorGate):
    """IE gate. Starts at w = 0, b = −1, hence at the constant σ(−1) = 0.26894."""

    ranks = ANY_RANK

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.weight = nn.Parameter(torch.empty(channels))
        self.bias = nn.Parameter(torch.empty(channels))
        self.start_constant()

    def forward(self, branch: Maps) -> ChannelGate:
        self.check_input(branch)
        return as_channel_gate(self.of_vector(spatial_mean(branch), self.squash), branch)

    def of_vector(self, vector: Vector, activation: Activation) -> Vector:
        return activation(torch.addcmul(self.bias, self.weight, vector.to(self.weight.dtype)))

    def start_constant(self) -> float:
        nn.init.zeros_(self.weight)
        nn.init.constant_(self.bias, -1.0)
        return 1 / (1 + math.e)
