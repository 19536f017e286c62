"""The scores of local attention: what is added to q · k, and which taps count.

Position terms, all optional: a learned bias per head and tap; SASA's relative encoding, in which a
head's channels are split into one part per axis and each part meets an embedding of the offset
along its axis (so K_h + K_w vectors instead of K_h·K_w).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from attnlab.evolution.window import Sizes, Window


def with_positions(
    scores: Tensor,
    query: Tensor,
    key: Tensor,
    bias: Tensor | None,
    relative: Sequence[Tensor],
    mask: bool,
    window: Window,
) -> Tensor:
    """`scores` (B, heads, taps, *out) with the position terms and, masked, -∞ outside the image."""
    if bias is not None:
        scores = scores + bias.to(scores.dtype)[(None, ..., *(None,) * window.axes)]
    if relative:
        scores = scores + relative_scores(query, relative)
    if mask:
        inside = taps_inside(key.shape[2:], window, key.device)
        scores = scores.masked_fill(~inside, float("-inf"))
    return scores


def relative_scores(query: Tensor, relative: Sequence[Tensor]) -> Tensor:
    """q · r for every tap: (B, heads, taps, *out)."""
    axes = len(relative)
    total: Tensor | None = None
    for axis, (part, embedding) in enumerate(zip(_parts(query, relative), relative, strict=True)):
        along = torch.einsum("bpd...,pdu->bpu...", part, embedding.to(query.dtype))
        shape = [1] * axes
        shape[axis] = along.shape[2]
        spread = along.unflatten(2, shape)
        total = spread if total is None else total + spread
    assert total is not None
    return total.flatten(2, 1 + axes)


def relative_gradients(
    gradient: Tensor, query: Tensor, relative: Sequence[Tensor]
) -> tuple[Tensor, list[Tensor]]:
    """What `relative_scores` hands back to the query and to each embedding."""
    axes = len(relative)
    apart = gradient.unflatten(2, [embedding.shape[2] for embedding in relative])
    to_query, to_embeddings = [], []
    for axis, (part, embedding) in enumerate(zip(_parts(query, relative), relative, strict=True)):
        others = [2 + other for other in range(axes) if other != axis]
        along = apart.sum(others) if others else apart
        to_query.append(torch.einsum("bpu...,pdu->bpd...", along, embedding.to(query.dtype)))
        to_embeddings.append(torch.einsum("bpd...,bpu...->pdu", part, along))
    return torch.cat(to_query, 2).flatten(1, 2), to_embeddings


def _parts(query: Tensor, relative: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The channels of each head that meet each axis: (B, heads, depth / axes, *out)."""
    return query.unflatten(1, (relative[0].shape[0], -1)).chunk(len(relative), dim=2)


def taps_inside(size: Sizes, window: Window, device: torch.device | None = None) -> Tensor:
    """Whether each tap of each output pixel lies in the image: (taps, *out)."""
    axes = window.axes
    everywhere: Tensor | None = None
    for axis, (length, out, kernel, stride, dilation, padding) in enumerate(
        zip(size, window.output_size(*size), *window, strict=True)
    ):
        taps = dilation * torch.arange(kernel, device=device)[:, None] - padding
        at = stride * torch.arange(out, device=device) + taps
        shape = [1] * (2 * axes)
        shape[axis], shape[axes + axis] = kernel, out
        inside = ((at >= 0) & (at < length)).view(shape)
        everywhere = inside if everywhere is None else everywhere & inside
    assert everywhere is not None
    return everywhere.flatten(0, axes - 1)
