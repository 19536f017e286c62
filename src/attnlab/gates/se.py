"""Squeeze-and-Excitation and its two nearest variants; z is the mean of each channel.

* SE (Hu et al., CVPR 2018): `gate = σ(W₂ ReLU(W₁ z + b₁) + b₂)` with hidden width round(C / 16).
* Effective SE, the gate of VoVNetV2 (Lee and Park, CVPR 2020): `gate = σ(W z + b)`, one layer of
  full width where SE has two with a bottleneck between them.
* Concurrent spatial and channel SE (Roy et al., MICCAI 2018): `gate = c + s`, with SE's channel
  gate c of hidden width C / 2, and one value per pixel, `s = σ(w · x + b)`, from a 1 x 1
  convolution.
"""

from __future__ import annotations

import torch
from torch import nn

from attnlab._types import ChannelGate, Features, Maps, Vector
from attnlab.gates._gate import ANY_RANK, Activation, BranchGate, VectorGate
from attnlab.gates._pooling import spatial_mean
from attnlab.gates._shared import (
    Excitation,
    NonlinearityName,
    SquashName,
    as_channel_gate,
    broadcast_like,
    floored_width,
    hidden_width,
    squash_named,
    zero,
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
        return activation(self._modules["excitation"](vector))  # type: ignore[misc]

    def start_constant(self) -> float:
        self.excitation.start_zero()
        return 0.5


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


class SpatialChannelExcitation(BranchGate):
    """scSE gate, between 0 and 2.

    The paper adds the two recalibrated maps. The authors' code takes the larger of the two at every
    place, `max(c x, s x)`: `official=True`. As a gate that is the larger of c and s where x is
    positive, and the smaller one where it is negative.
    """

    def __init__(self, channels: int, reduction: int = 2, official: bool = False) -> None:
        super().__init__(channels)
        hidden = floored_width(channels, reduction)
        self.excitation = Excitation(channels, hidden, channels, bias=True)
        self.conv = nn.Conv2d(channels, 1, 1)
        self.official = official

    def forward(self, branch: Features) -> Features:
        self.check_input(branch)
        channel = torch.sigmoid(self.excitation(spatial_mean(branch)))[:, :, None, None]
        spatial = torch.sigmoid(self.conv(branch))
        parts = (channel.to(branch.dtype), spatial.to(branch.dtype))
        if not self.official:
            return broadcast_like(branch, torch.add, *parts)
        larger = broadcast_like(branch, torch.maximum, *parts)
        smaller = broadcast_like(branch, torch.minimum, *parts)
        return torch.where(branch >= 0, larger, smaller)

    def start_constant(self) -> float:
        self.excitation.start_zero()
        zero(self.conv)
        return 0.5 if self.official else 1.0

    def extra_repr(self) -> str:
        return f"{self.channels}, official={self.official}"
