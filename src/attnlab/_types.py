"""Shapes as types; checked under pytest only."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

Features = Float[Tensor, "batch channels height width"]
"""A feature map."""

ChannelGate = Float[Tensor, "batch channels 1 1"]
"""One attention value per input and channel."""

Vector = Float[Tensor, "batch channels"]
"""One value per input and channel, without the spatial axes."""
