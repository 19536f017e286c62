"""Every operator in torch alone: the default of the dispatcher, and what a compiler is given.

The scores of local attention are q · k and position terms, all optional: a learned bias per head
and tap; SASA's relative encoding, in which a head's channels are split into one part per axis and
each part meets an embedding of the offset along its axis (so K_h + K_w vectors instead of K_h·K_w).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from attnlab.evolution._implementation import (
    AttentionCall,
    Implementation,
    SpanCall,
    computing,
    span_gradients_by_primitives,
    spanned_by_primitives,
)
from attnlab.evolution._torch_forms import (
    av_shift,
    av_view,
    blocks,
    qk_shift,
    qk_view,
    sc_shift,
    sc_view,
)
from attnlab.evolution.window import Sizes, Window


class Primitives(NamedTuple):
    """One form of the three primitives, and how it takes a batch."""

    av: Callable[..., Tensor]
    qk: Callable[..., Tensor]
    sc: Callable[..., Tensor]
    blocks: Callable[[int, torch.device], Iterator[slice]]


def whole_batch(batch: int, _device: torch.device) -> Iterator[slice]:
    """Return the whole batch as one part."""
    yield slice(0, batch)


class Plain(Implementation):
    """The operators from one form of the primitives. Half types accumulate in float32."""

    def __init__(self, primitives: Primitives) -> None:
        self.form = primitives

    def av(self, maps: Tensor, x: Tensor, window: list[int]) -> Tensor:
        compute = computing(x.dtype)
        out = self.form.av(maps.to(compute), x.to(compute), Window.from_flat(window))
        return out.to(x.dtype)

    def qk(self, q: Tensor, x: Tensor, groups: int, window: list[int]) -> Tensor:
        compute = computing(x.dtype)
        out = self.form.qk(q.to(compute), x.to(compute), groups, Window.from_flat(window))
        return out.to(x.dtype)

    def sc(self, maps: Tensor, y: Tensor, size: list[int], window: list[int]) -> Tensor:
        compute = computing(y.dtype)
        out = self.form.sc(maps.to(compute), y.to(compute), tuple(size), Window.from_flat(window))
        return out.to(y.dtype)

    def spanned_av(self, call: SpanCall) -> Tensor:
        return spanned_by_primitives(self, call)

    def spanned_av_backward(self, grad: Tensor, call: SpanCall) -> list[Tensor]:
        return span_gradients_by_primitives(self, grad, call)

    def attention(self, call: AttentionCall) -> tuple[Tensor, Tensor]:
        dtype = call.parts[0].dtype
        outs, stats = [], []
        for query, key, value in self._each(call):
            scores = self._scores(query * call.scale, key, call)
            most = scores.amax(2, keepdim=True)
            weight = (scores - most).exp()
            inverse = 1 / weight.sum(2, keepdim=True)
            outs.append(self.form.av(weight * inverse, value, call.shape).to(dtype))
            stats.append(torch.cat((most, inverse), 2))
        return torch.cat(outs), torch.cat(stats)

    def attention_backward(self, grad: Tensor, stats: Tensor, call: AttentionCall) -> list[Tensor]:
        compute, positions = stats.dtype, call.positions
        sums = [torch.zeros(t.shape, dtype=compute, device=t.device) for t in positions]
        found: list[tuple[Tensor, ...]] = []
        at = self.form.blocks(grad.shape[0], grad.device)
        for block, operands in zip(at, self._each(call), strict=True):
            to_operands, added = self._block_gradients(
                grad[block].to(compute), stats[block], operands, call
            )
            sums = [total + more for total, more in zip(sums, added, strict=True)]
            found.append(to_operands)
        dtype = call.parts[0].dtype
        gradients = [torch.cat(pieces).to(dtype) for pieces in zip(*found, strict=True)]
        if len(call.parts) == 1:
            gradients = [torch.cat(gradients, 1)]
        return gradients + [s.to(t.dtype) for s, t in zip(sums, positions, strict=True)]

    def _block_gradients(
        self, grad: Tensor, stats: Tensor, operands: tuple[Tensor, ...], call: AttentionCall
    ) -> tuple[tuple[Tensor, ...], list[Tensor]]:
        """The gradients of query, key and value of one block, and what it adds to those of the
        position terms."""
        query, key, value = operands
        query, shape = query * call.scale, call.shape
        most, inverse = stats.chunk(2, dim=2)
        weight = (self._scores(query, key, call) - most).exp() * inverse
        change = self.form.qk(grad, value, call.heads, shape)
        change = weight * (change - (weight * change).sum(2, keepdim=True))
        to_query = self.form.av(change, key, shape)
        added = []
        if call.bias is not None:
            added.append(change.sum((0, *range(3, 3 + shape.axes))))
        if call.relative:
            through, to_embeddings = relative_gradients(change, query, call.relative)
            to_query = to_query + through
            added += to_embeddings
        size = tuple(key.shape[2:])
        to_key = self.form.sc(change, query, size, shape)
        return (to_query * call.scale, to_key, self.form.sc(weight, grad, size, shape)), added

    def _each(self, call: AttentionCall) -> Iterator[tuple[Tensor, ...]]:
        first, operands = call.parts[0], call.operands()
        compute = computing(first.dtype)
        for block in self.form.blocks(first.shape[0], first.device):
            yield tuple(t[block].to(compute) for t in operands)

    def _scores(self, query: Tensor, key: Tensor, call: AttentionCall) -> Tensor:
        scores = self.form.qk(query, key, call.heads, call.shape)
        return with_positions(scores, query, key, call)


def with_positions(scores: Tensor, query: Tensor, key: Tensor, call: AttentionCall) -> Tensor:
    """`scores` (B, heads, taps, *out) with the position terms and, masked, -∞ outside the image."""
    if call.bias is not None:
        scores = scores + call.bias.to(scores.dtype)[(None, ..., *(None,) * call.shape.axes)]
    if call.relative:
        scores = scores + relative_scores(query, call.relative)
    if call.mask:
        inside = taps_inside(key.shape[2:], call.shape, key.device)
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
    """Return the gradients of `relative_scores` for the query and for each embedding."""
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
    """Return whether each tap of each output pixel lies in the image: (taps, *out)."""
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


EAGER = Plain(Primitives(av_shift, qk_shift, sc_shift, blocks))
LOWERED = Plain(Primitives(av_view, qk_view, sc_view, whole_batch))
