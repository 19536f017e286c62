"""Effective Squeeze-and-Excitation, the gate of VoVNetV2 (Lee and Park, CVPR 2020).

`gate = σ(W z + b)`: one layer of full width on the channel means z, where SE has two with a
bottleneck between them.
"""

from __future__ import annotations

from torch import nn

from attnlab._types import ChannelGate, Maps, Vector
from attnlab.gates._gate import ANY_RANK, Activation, VectorGate
from attnlab.gates._pooling import spatial_mean
from attnlab.gates._shared import as_channel_gate, squash_named, zero


class EffectiveSqueezeExcitation(VectorGate):
    """eSE gate. The paper writes a sigmoid, the authors' code has the piecewise linear
    `ReLU6(x + 3) / 6` in its place: `official=True`."""

    ranks = ANY_RANK

    def __init__(self, channels: int, official: bool = False) -> None:
        super().__init__(channels)
        self.fc = nn.Linear(channels, channels)
        self.squash = squash_named("hard_sigmoid" if official else "sigmoid")
        self.official = official

    def forward(self, branch: Maps) -> ChannelGate:
        self.check_input(branch)
        return as_channel_gate(self.of_vector(spatial_mean(branch), self.squash), branch)

    def of_vector(self, vector: Vector, activation: Activation) -> Vector:
        return activation(self.fc(vector))

    def start_constant(self) -> float:
        zero(self.fc)
        return 0.5

    def extra_repr(self) -> str:
        return f"{self.channels}, official={self.official}"
