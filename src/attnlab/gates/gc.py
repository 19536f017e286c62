"""Global Context, in its scaling form (Cao et al., ICCV Workshops 2019).

Each pixel gets a weight, `a = softmax over space of (w · x)`; the weighted sum of the map is its
context `k = Σ a x`, and `gate = σ(W₂ ReLU(LN(W₁ k + b₁)) + b₂)`.

The paper's network *adds* its transformed context to every pixel instead. That form is not a gate:
what it adds does not depend on the pixel it is added to, so no factor can stand for it.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import nn
from torch.nn import functional as F

from attnlab._errors import unknown_name
from attnlab._types import ChannelGate, Maps, Vector
from attnlab.gates._gate import ANY_RANK, Activation, VectorGate
from attnlab.gates._pooling import is_channels_last, spatial_mean
from attnlab.gates._shared import as_channel_gate, floored_width, zero

Pooling = Literal["attention", "mean"]
LEAST = 4
"""Hidden units at least: LayerNorm makes a constant of one unit and a sign of two."""


class GlobalContext(VectorGate):
    """GC gate. The last layer starts at 0, as the authors' does, hence the gate at 0.5.

    `pooling="mean"` is the authors' simpler variant, in which every pixel weighs the same; the two
    are one on a constant map, so ASR takes that. Ours: the weighing has no bias, which softmax
    would cancel; at least 4 hidden units.
    """

    ranks = ANY_RANK

    def __init__(self, channels: int, reduction: int = 16, pooling: Pooling = "attention") -> None:
        super().__init__(channels)
        if pooling not in get_args(Pooling):
            raise unknown_name("pooling", pooling, get_args(Pooling))
        hidden = floored_width(channels, reduction, LEAST)
        self.mask = nn.Linear(channels, 1, bias=False) if pooling == "attention" else None
        self.fc1 = nn.Linear(channels, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.fc2 = nn.Linear(hidden, channels)
        self.start_constant()

    def forward(self, branch: Maps) -> ChannelGate:
        self.check_input(branch)
        return as_channel_gate(self.of_vector(self.context(branch), self.squash), branch)

    def context(self, branch: Maps) -> Vector:
        """The mean of the map, weighted pixel by pixel."""
        if self.mask is None:
            return spatial_mean(branch)
        # Expanded by hand: torch.matmul would copy the map to fold its batch into one product.
        weight = self.mask.weight.to(branch.dtype).expand(branch.shape[0], -1, -1)
        wide = torch.promote_types(branch.dtype, torch.float32)
        # Products in the order of the map give gradients in its order.
        if is_channels_last(branch):
            pixels = branch.permute(0, 2, 3, 1).flatten(1, 2)
            scores = torch.bmm(pixels, weight.transpose(1, 2))
            weights = torch.softmax(scores, dim=1, dtype=wide).to(branch.dtype)
            return torch.bmm(weights.transpose(1, 2), pixels)[:, 0]
        pixels = branch.flatten(2)
        scores = torch.bmm(weight, pixels)
        weights = torch.softmax(scores, dim=2, dtype=wide).to(branch.dtype)
        return torch.bmm(pixels, weights.transpose(1, 2))[:, :, 0]

    def of_vector(self, vector: Vector, activation: Activation) -> Vector:
        return activation(self.fc2(F.relu(self.norm(self.fc1(vector)))))

    def start_constant(self) -> float:
        zero(self.fc2)
        return 0.5
