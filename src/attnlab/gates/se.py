"""Squeeze-and-Excitation (Hu et al., CVPR 2018).

`gate = σ(W₂ ReLU(W₁ z + b₁) + b₂)`, with z the mean of each channel and hidden width round(C / 16).
"""

from __future__ import annotations

from attnlab._types import ChannelGate, Maps, Vector
from attnlab.gates._gate import ANY_RANK, Activation, VectorGate
from attnlab.gates._pooling import spatial_mean
from attnlab.gates._shared import (
    Excitation,
    NonlinearityName,
    SquashName,
    as_channel_gate,
    hidden_width,
    squash_named,
)


class SqueezeExcitation(VectorGate):
    """SE gate. Both layers have a bias: only that reproduces the papers' parameter counts.

    Later networks changed its functions: MobileNetV3 has `squash="hard_sigmoid"`, EfficientNet has
    `nonlinearity="silu"`.
    """

    ranks = ANY_RANK

    def __init__(
        self,
        channels: int,
        reduction: int | float = 16,
        bias: bool = True,
        nonlinearity: NonlinearityName = "relu",
        squash: SquashName = "sigmoid",
    ) -> None:
        super().__init__(channels)
        self.squash = squash_named(squash)
        hidden = hidden_width(channels, reduction)
        self.excitation = Excitation(channels, hidden, channels, bias, nonlinearity)

    def forward(self, branch: Maps) -> ChannelGate:
        self.check_input(branch)
        return as_channel_gate(self.of_vector(spatial_mean(branch), self.squash), branch)

    def of_vector(self, vector: Vector, activation: Activation) -> Vector:
        return activation(self.excitation(vector))

    def start_constant(self) -> float:
        self.excitation.start_zero()
        return 0.5
