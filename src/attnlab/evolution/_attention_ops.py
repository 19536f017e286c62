"""Fused local attention as torch operators, `torch.ops.attnlab.attention` and its backward pass.

`parts` are query, key and value, or one tensor of which they are the thirds (stride 1): then there
is one gradient too, which saves joining three. The second output holds the maximum and one over the
sum of every softmax, from which the backward pass computes the scores again.

A backward pass that is itself to be differentiated (`create_graph=True`) is written with the three
primitives instead of the fused kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import torch
from torch import Tensor
from torch.library import custom_op

from attnlab._types import Saved
from attnlab.evolution import _ops
from attnlab.evolution._implementation import AttentionCall, computing, thirds
from attnlab.evolution._plain import EAGER, with_positions

Settings = tuple[int, float, bool, list[int]]
"""Heads, scale, mask and window, as the operators take them."""
_Value = TypeVar("_Value", Tensor, Tensor | None)


@custom_op("attnlab::attention", mutates_args=())
def attention_operator(
    parts: list[Tensor],
    bias: Tensor | None,
    relative: list[Tensor],
    heads: int,
    scale: float,
    mask: bool,
    window: list[int],
) -> tuple[Tensor, Tensor]:
    return EAGER.attention(AttentionCall(parts, bias, relative, heads, scale, mask, window))


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
    call = AttentionCall(parts, bias, relative, heads, scale, mask, window)
    return EAGER.attention_backward(grad, stats, call)


@attention_operator.register_fake
def _(
    parts: list[Tensor], _bias: Tensor | None, _relative: list[Tensor], heads: int, *_: object
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
    *_: object,
) -> list[Tensor]:
    given = [*parts, *([] if bias is None else [bias]), *relative]
    return [t.new_empty(t.shape) for t in given]


def differentiable_maps(call: AttentionCall) -> Tensor:
    """The attention as maps (B, heads, taps, *out), with gradients; at least float32.

    The value among `call.parts` is not looked at.
    """
    query, key = call.parts[:2]
    compute = computing(query.dtype)
    query, key = query.to(compute) * call.scale, key.to(compute)
    scores = _ops.qk_operator(query, key, call.heads, call.window)
    return with_positions(scores, query, key, call).softmax(2)


class _Context(Saved, Protocol):
    settings: Settings
    counts: tuple[int, int]
    """How many parts and biases there are; the other tensors are embeddings."""


def _keep(ctx: _Context, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:
    parts, bias, relative, *settings = inputs
    ctx.settings = tuple(settings)
    ctx.counts = (len(parts), 0 if bias is None else 1)
    ctx.save_for_backward(output[1], *parts, *([] if bias is None else [bias]), *relative)
    ctx.mark_non_differentiable(output[1])


def _split(
    tensors: Sequence[_Value], counts: tuple[int, int]
) -> tuple[list[_Value], _Value | None, list[_Value]]:
    """A flat list as parts, bias (or None) and relative embeddings."""
    parts, with_bias = counts
    first = parts + with_bias
    return list(tensors[:parts]), tensors[parts] if with_bias else None, list(tensors[first:])


def _gradients(ctx: _Context, grad: Tensor, _: Tensor) -> tuple[object, ...]:
    stats, *tensors = ctx.saved_tensors
    found: Sequence[Tensor | None]
    if torch.is_grad_enabled():
        found = _differentiable(grad, tensors, ctx)
    else:
        found = attention_backward(grad, stats, *_split(tensors, ctx.counts), *ctx.settings)
    return *_split(found, ctx.counts), *(None,) * len(ctx.settings)


def _differentiable(grad: Tensor, tensors: list[Tensor], ctx: _Context) -> list[Tensor | None]:
    """Return the same gradients by `torch.autograd.grad` of the unfused form."""
    # Aliases: query, key and value may be one tensor, or computed from each other.
    aliases = tuple(t.view_as(t) for t in tensors)
    parts, bias, relative = _split(aliases, ctx.counts)
    query, key, value = thirds(parts)
    call = AttentionCall([query, key, value], bias, relative, *ctx.settings)
    maps = differentiable_maps(call)
    out = _ops.av_operator(maps, value.to(maps.dtype), call.window).to(grad.dtype)
    return _ops.gradients_again(out, aliases, grad)


attention_operator.register_autograd(_gradients, setup_context=_keep)
