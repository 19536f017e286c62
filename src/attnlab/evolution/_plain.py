"""Every operator in torch alone: the default of the dispatcher, and what a compiler is given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from attnlab.evolution import _span
from attnlab.evolution._implementation import Implementation, computing, thirds
from attnlab.evolution._shift import av_shift, blocks, qk_shift, sc_shift
from attnlab.evolution._view import av_view, qk_view, sc_view
from attnlab.evolution.scores import relative_gradients, with_positions
from attnlab.evolution.window import Window


class Primitives(NamedTuple):
    """One form of the three primitives, and how it takes a batch."""

    av: Callable[..., Tensor]
    qk: Callable[..., Tensor]
    sc: Callable[..., Tensor]
    blocks: Callable[[int, torch.device], Iterator[slice]]


def whole_batch(batch: int, _device: torch.device) -> Iterator[slice]:
    """The batch as one part."""
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

    def spanned_av(
        self,
        features: Tensor,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        groups: int,
        window: list[int],
    ) -> Tensor:
        return _span.forward(self, features, x, weight, bias, groups, window)

    def spanned_av_backward(
        self,
        grad: Tensor,
        features: Tensor,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        groups: int,
        window: list[int],
    ) -> list[Tensor]:
        return _span.backward(self, grad, features, x, weight, bias, groups, window)

    def attention(
        self,
        parts: list[Tensor],
        bias: Tensor | None,
        relative: list[Tensor],
        heads: int,
        scale: float,
        mask: bool,
        window: list[int],
    ) -> tuple[Tensor, Tensor]:
        shape, dtype = Window.from_flat(window), parts[0].dtype
        outs, stats = [], []
        for query, key, value in self._each(parts):
            scores = self._scores(query * scale, key, bias, relative, heads, mask, shape)
            most = scores.amax(2, keepdim=True)
            weight = (scores - most).exp()
            inverse = 1 / weight.sum(2, keepdim=True)
            outs.append(self.form.av(weight * inverse, value, shape).to(dtype))
            stats.append(torch.cat((most, inverse), 2))
        return torch.cat(outs), torch.cat(stats)

    def attention_backward(
        self,
        grad: Tensor,
        stats: Tensor,
        parts: list[Tensor],
        bias: Tensor | None,
        relative: list[Tensor],
        heads: int,
        scale: float,
        mask: bool,
        window: list[int],
    ) -> list[Tensor]:
        shape, compute = Window.from_flat(window), stats.dtype
        positions = ([] if bias is None else [bias]) + relative
        sums = [torch.zeros(t.shape, dtype=compute, device=t.device) for t in positions]
        found: list[tuple[Tensor, ...]] = []
        at = self.form.blocks(grad.shape[0], grad.device)
        for block, (query, key, value) in zip(at, self._each(parts), strict=True):
            query, incoming = query * scale, grad[block].to(compute)
            scores = self._scores(query, key, bias, relative, heads, mask, shape)
            most, inverse = stats[block].chunk(2, dim=2)
            weight = (scores - most).exp() * inverse
            change = self.form.qk(incoming, value, heads, shape)
            change = weight * (change - (weight * change).sum(2, keepdim=True))
            to_query = self.form.av(change, key, shape)
            added = []
            if bias is not None:
                added.append(change.sum((0, *range(3, 3 + shape.axes))))
            if relative:
                through, to_embeddings = relative_gradients(change, query, relative)
                to_query = to_query + through
                added += to_embeddings
            sums = [total + more for total, more in zip(sums, added, strict=True)]
            size = tuple(key.shape[2:])
            found.append(
                (
                    to_query * scale,
                    self.form.sc(change, query, size, shape),
                    self.form.sc(weight, incoming, size, shape),
                )
            )
        gradients = [torch.cat(pieces).to(parts[0].dtype) for pieces in zip(*found, strict=True)]
        if len(parts) == 1:
            gradients = [torch.cat(gradients, 1)]
        return gradients + [s.to(t.dtype) for s, t in zip(sums, positions, strict=True)]

    def _each(self, parts: list[Tensor]) -> Iterator[tuple[Tensor, ...]]:
        compute = computing(parts[0].dtype)
        for block in self.form.blocks(parts[0].shape[0], parts[0].device):
            yield tuple(t[block].to(compute) for t in thirds(parts))

    def _scores(
        self,
        query: Tensor,
        key: Tensor,
        bias: Tensor | None,
        relative: Sequence[Tensor],
        heads: int,
        mask: bool,
        window: Window,
    ) -> Tensor:
        scores = self.form.qk(query, key, heads, window)
        return with_positions(scores, query, key, bias, relative, mask, window)


EAGER = Plain(Primitives(av_shift, qk_shift, sc_shift, blocks))
LOWERED = Plain(Primitives(av_view, qk_view, sc_view, whole_batch))
