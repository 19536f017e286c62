"""Concurrent Spatial and Channel Squeeze & Excitation (Roy et al., MICCAI 2018).

`gate = c + s`: SE's channel gate `c = σ(W₂ ReLU(W₁ z + b₁) + b₂)` with hidden width C / 2, and one
value per pixel, `s = σ(w · x + b)`, from a 1 x 1 convolution.
"""

from __future__ import annotations

import torch
from torch import nn

from attnlab._types import Features
from attnlab.gates._gate import BranchGate
from attnlab.gates._pooling import spatial_mean
from attnlab.gates._shared import Excitation, broadcast_like, floored_width, zero


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
