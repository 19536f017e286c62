"""Fused local attention as torch operators, `torch.ops.attnlab.attention` and its backward pass.

`parts` are query, key and value, or one tensor of which they are the thirds (stride 1): then there
is one gradient too, which saves joining three. The second output holds the maximum and one over the
sum of every softmax, from which the backward pass computes the scores again.

A backward pass that is itself to be differentiated (`create_graph=True`) is written with the three
primitives instead of the fused kernel.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.library import custom_op

from attnlab.evolution import _ops
from attnlab.evolution._implementation import computing, thirds
from attnlab.evolution._plain import EAGER
from attnlab.evolution.scores import with_positions
from attnlab.evolution.window import Window


@custom_op("attnlab::attention", mutates_args=())
def attention(
    parts: list[Tensor],
    bias: Tensor | None,
    relative: list[Tensor],
    heads: int,
    scale: float,
    mask: bool,
    window: list[int],
) -> tuple[Tensor, Tensor]:
    return EAGER.attention(parts, bias, relative, heads, scale, mask, window)


@custom_op("attnlab::attention_backward", mutates_args=())
def attention_backward(
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
    return EAGER.attention_backward(grad, stats, parts, bias, relative, heads, scale, mask, window)


@attention.register_fake
def _(
    parts: list[Tensor], _bias: Tensor | None, _relative: list[Tensor], heads: int, *_: Any
) -> tuple[Tensor, Tensor]:
    query, _key, value = thirds(parts)
    batch, size = query.shape[0], query.shape[2:]
    stats = query.new_empty(batch, heads, 2, *size, dtype=computing(query.dtype))
    return query.new_empty(batch, value.shape[1], *size), stats


@attention_backward.register_fake
def _(
    _grad: Tensor,
    _stats: Tensor,
    parts: list[Tensor],
    bias: Tensor | None,
    relative: list[Tensor],
    *_: Any,
) -> list[Tensor]:
    given = [*parts, *([] if bias is None else [bias]), *relative]
    return [t.new_empty(t.shape) for t in given]


def maps_of(
    query: Tensor,
    key: Tensor,
    bias: Tensor | None,
    relative: list[Tensor],
    heads: int,
    scale: float,
    mask: bool,
    window: list[int],
) -> Tensor:
    """The attention as maps (B, heads, taps, *out), differentiable; at least float32."""
    compute = computing(query.dtype)
    query, key = query.to(compute) * scale, key.to(compute)
    scores = _ops.qk(query, key, heads, window)
    shape = Window.from_flat(window)
    return with_positions(scores, query, key, bias, relative, mask, shape).softmax(2)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    parts, bias, relative, *ctx.settings = inputs
    ctx.counts = (len(parts), 0 if bias is None else 1, len(relative))
    ctx.save_for_backward(output[1], *parts, *([] if bias is None else [bias]), *relative)
    ctx.mark_non_differentiable(output[1])


def _split(tensors: list[Any], counts: tuple[int, int, int]) -> tuple[Any, Any, Any]:
    """A flat list as parts, bias (or None) and relative embeddings."""
    parts, with_bias, _ = counts
    first = parts + with_bias
    return tensors[:parts], tensors[parts] if with_bias else None, tensors[first:]


def _gradients(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Any, ...]:
    stats, *tensors = ctx.saved_tensors
    found: list[Any]
    if torch.is_grad_enabled():
        found = _differentiable(grad, tensors, ctx.counts, ctx.settings)
    else:
        found = attention_backward(grad, stats, *_split(tensors, ctx.counts), *ctx.settings)
    return *_split(found, ctx.counts), *(None,) * len(ctx.settings)


def _differentiable(
    grad: Tensor, tensors: list[Tensor], counts: tuple[int, int, int], settings: list[Any]
) -> list[Tensor | None]:
    """The same gradients through `torch.autograd.grad` of the unfused form."""
    # Aliases: query, key and value may be one tensor, or computed from each other.
    aliases = [t.view_as(t) for t in tensors]
    parts, bias, relative = _split(aliases, counts)
    query, key, value = thirds(parts)
    maps = maps_of(query, key, bias, relative, *settings)
    out = _ops.av(maps, value.to(maps.dtype), settings[-1]).to(grad.dtype)
    wanted = [t for t in aliases if t.requires_grad]
    found = iter(torch.autograd.grad(out, wanted, grad, create_graph=True))
    return [next(found) if t.requires_grad else None for t in aliases]


attention.register_autograd(_gradients, setup_context=_keep)
