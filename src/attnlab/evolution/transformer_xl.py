"""Positions as in Transformer-XL (Dai et al., ACL 2019), Equations 30 to 32 of the Evolution paper.

    score[i, j] = (q_i + u) · k_j + (q_i + v) · R(i − j),    R(δ) = W · [sin(δ f), cos(δ f)]

u, v and W are learned, per head. R is linear in sines and cosines of the distance, so it needs no
number for every offset as a learned embedding does. Of images and videos every axis has its own
distance and its own part of a head's channels. As local attention computes it, that is a query
q + u, an embedding R of every offset, and a bias (v − u) · R of every tap.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from attnlab.evolution.window import Window


def waves(distance: Tensor, width: int) -> Tensor:
    """(width, distances): the sines of all frequencies, then the cosines; `width` is even."""
    exponent = torch.arange(0, width, 2, device=distance.device, dtype=distance.dtype) / width
    angle = distance * (10000.0**-exponent)[:, None]
    return torch.cat((angle.sin(), angle.cos()))


class TransformerXLPositions(nn.Module):
    """u, v and W of a layer with `heads` of `depth` channels, a multiple of the window's axes."""

    def __init__(self, heads: int, depth: int, window: Window) -> None:
        super().__init__()
        self.window = window
        self.width = depth + depth % 2
        self.content = nn.Parameter(torch.zeros(heads, depth))
        self.position = nn.Parameter(torch.zeros(heads, depth))
        part = depth // window.axes
        self.projections = nn.ParameterList(
            nn.Parameter(torch.randn(heads, part, self.width) * (depth * self.width) ** -0.5)
            for _ in range(window.axes)
        )

    def query(self, query: Tensor) -> Tensor:
        """q + u of queries (B, heads · depth, *size)."""
        return query + self.content.flatten()[(..., *(None,) * self.window.axes)]

    def embeddings(self) -> tuple[Tensor, ...]:
        """R of every offset along each axis, (heads, depth / axes, K)."""
        found = []
        sizes = zip(self.window.kernel_size, self.window.dilation, strict=True)
        for weight, (size, dilation) in zip(self.projections, sizes, strict=True):
            tap = torch.arange(size, device=weight.device, dtype=weight.dtype)
            # The key of tap u lies u − l places after the query, so the query is l − u after it.
            found.append(weight @ waves(dilation * (size // 2 - tap), self.width))
        return tuple(found)

    def bias(self, embeddings: tuple[Tensor, ...]) -> Tensor:
        """(v − u) · R of every tap, (heads, taps), times the scale of the scores."""
        heads, depth = self.content.shape
        parts = (self.position - self.content).chunk(len(embeddings), dim=1)
        total = self.content.new_zeros(heads, *self.window.kernel_size)
        for axis, (part, embedding) in enumerate(zip(parts, embeddings, strict=True)):
            shape = [heads] + [1] * len(embeddings)
            shape[1 + axis] = -1
            total = total + torch.einsum("pd,pdk->pk", part, embedding).view(shape)
        return total.flatten(1) * depth**-0.5
