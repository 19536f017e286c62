"""Squeeze-and-Excitation (Hu et al., CVPR 2018).

`gate = σ(W₂ ReLU(W₁ z + b₁) + b₂)`, with z the mean of each channel and hidden width round(C / 16).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab._types import ChannelGate, Features
from attnlab.attention._gate import BranchGate
from attnlab.attention._shared import hidden_width


def squeeze_excitation(
    branch: Features,
    weight1: Tensor,
    bias1: Tensor | None,
    weight2: Tensor,
    bias2: Tensor | None,
) -> ChannelGate:
    """The SE gate of `branch` from the two fully connected layers."""
    squeezed = branch.mean(dim=(2, 3))
    hidden = F.relu(F.linear(squeezed, weight1, bias1))
    return torch.sigmoid(F.linear(hidden, weight2, bias2))[:, :, None, None]


class SqueezeExcitation(BranchGate):
    """SE gate. Both layers have a bias: only that reproduces the papers' parameter counts."""

    on_vector = True

    def __init__(self, channels: int, reduction: int = 16, bias: bool = True) -> None:
        super().__init__(channels)
        hidden = hidden_width(channels, reduction)
        self.fc1 = nn.Linear(channels, hidden, bias=bias)
        self.fc2 = nn.Linear(hidden, channels, bias=bias)

    def forward(self, branch: Features) -> ChannelGate:
        return squeeze_excitation(
            branch, self.fc1.weight, self.fc1.bias, self.fc2.weight, self.fc2.bias
        )

    def start_constant(self) -> float:
        nn.init.zeros_(self.fc2.weight)
        if self.fc2.bias is not None:
            nn.init.zeros_(self.fc2.bias)
        return 0.5
