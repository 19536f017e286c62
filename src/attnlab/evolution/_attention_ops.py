"""Fused local attention as torch operators.

`attention` takes query, key and value apart; `attention_packed` takes them as the thirds of one
tensor (stride 1) and writes one gradient, which saves joining three. Both also return the maximum
and the normaliser of every softmax, from which the backward pass computes the scores again.

A backward pass that is itself to be differentiated (`create_graph=True`) is written with the three
primitives instead of the fused kernel.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.library import custom_op

from attnlab.evolution import _ops
from attnlab.evolution.native.abi import COMPUTE, Attention, operand, planes, problem
from attnlab.evolution.window import Window

Ints = list[int]


def thirds(packed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value of a packed tensor, as views."""
    query, key, value = packed.chunk(3, dim=1)
    return query, key, value


def _settings(
    query: Tensor,
    value: Tensor,
    positions: tuple[Tensor | None, ...],
    heads: int,
    scale: float,
    mask: bool,
) -> tuple[Attention, tuple[Tensor | None, ...]]:
    """The C structure, and the position terms it points to (to be kept alive)."""
    kept = tuple(None if t is None else t.to(COMPUTE[query.dtype]).contiguous() for t in positions)
    addresses = (None if t is None else t.data_ptr() for t in kept)
    depths = (query.shape[1] // heads, value.shape[1] // heads)
    return Attention(*depths, scale, mask, *addresses), kept


def _forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    positions: tuple[Tensor | None, ...],
    heads: int,
    scale: float,
    mask: bool,
    window: Window,
) -> tuple[Tensor, Tensor]:
    query, key, value = planes(query), planes(key), planes(value)
    batch, _, *out_size = query.shape
    out = value.new_empty(batch, value.shape[1], *out_size)
    stats = value.new_empty(batch, heads, 2, *out_size, dtype=COMPUTE[value.dtype])
    settings, kept = _settings(query, value, positions, heads, scale, mask)
    sizes = problem(batch, heads, (key.shape[2], key.shape[3]), (out_size[0], out_size[1]), window)
    _ops.call(
        "attention",
        query.dtype,
        sizes,
        settings,
        *operand(query),
        *operand(key),
        *operand(value),
        out.data_ptr(),
        stats.data_ptr(),
    )
    del kept
    return out, stats


def _backward(
    grad: Tensor,
    stats: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    positions: tuple[Tensor | None, ...],
    heads: int,
    scale: float,
    mask: bool,
    window: Window,
    grads: tuple[Tensor, Tensor, Tensor],
) -> tuple[Tensor, Tensor, Tensor]:
    """Fills `grads`; returns the gradients of the position terms (empty where there is none)."""
    query, key, value, grad = planes(query), planes(key), planes(value), planes(grad)
    settings, kept = _settings(query, value, positions, heads, scale, mask)
    batch = query.shape[0]
    sums = [stats.new_empty(0) if t is None else stats.new_empty(batch, *t.shape) for t in kept]
    sizes = problem(
        batch, heads, (key.shape[2], key.shape[3]), (query.shape[2], query.shape[3]), window
    )
    _ops.call(
        "attention_backward",
        query.dtype,
        sizes,
        settings,
        *operand(query),
        *operand(key),
        *operand(value),
        stats.data_ptr(),
        *operand(grad),
        *(item for g in grads for item in operand(g)),
        *(t.data_ptr() for t in sums),
    )
    first, second, third = (s if t is None else s.sum(0) for s, t in zip(sums, kept, strict=True))
    return first, second, third


@custom_op("attnlab::attention", mutates_args=(), device_types="cpu")
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    row: Tensor | None,
    column: Tensor | None,
    heads: int,
    scale: float,
    mask: bool,
    kernel: Ints,
    stride: Ints,
    dilation: Ints,
    pad: Ints,
) -> tuple[Tensor, Tensor]:
    window = _ops.window_of(kernel, stride, dilation, pad)
    return _forward(query, key, value, (bias, row, column), heads, scale, mask, window)


@custom_op("attnlab::attention_backward", mutates_args=(), device_types="cpu")
def attention_backward(
    grad: Tensor,
    stats: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    row: Tensor | None,
    column: Tensor | None,
    heads: int,
    scale: float,
    mask: bool,
    kernel: Ints,
    stride: Ints,
    dilation: Ints,
    pad: Ints,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    gq, gk, gv = (torch.empty(t.shape, dtype=t.dtype) for t in (query, key, value))
    window = _ops.window_of(kernel, stride, dilation, pad)
    positions, grads = (bias, row, column), (gq, gk, gv)
    gb, gr, gc = _backward(
        grad, stats, query, key, value, positions, heads, scale, mask, window, grads
    )
    return gq, gk, gv, gb, gr, gc


@custom_op("attnlab::attention_packed", mutates_args=(), device_types="cpu")
def attention_packed(
    packed: Tensor,
    bias: Tensor | None,
    row: Tensor | None,
    column: Tensor | None,
    heads: int,
    scale: float,
    mask: bool,
    kernel: Ints,
    stride: Ints,
    dilation: Ints,
    pad: Ints,
) -> tuple[Tensor, Tensor]:
    window = _ops.window_of(kernel, stride, dilation, pad)
    return _forward(*thirds(packed), (bias, row, column), heads, scale, mask, window)


@custom_op("attnlab::attention_packed_backward", mutates_args=(), device_types="cpu")
def attention_packed_backward(
    grad: Tensor,
    stats: Tensor,
    packed: Tensor,
    bias: Tensor | None,
    row: Tensor | None,
    column: Tensor | None,
    heads: int,
    scale: float,
    mask: bool,
    kernel: Ints,
    stride: Ints,
    dilation: Ints,
    pad: Ints,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    joined = torch.empty(packed.shape, dtype=packed.dtype)
    window = _ops.window_of(kernel, stride, dilation, pad)
    sums = _backward(
        grad,
        stats,
        *thirds(packed),
        (bias, row, column),
        heads,
        scale,
        mask,
        window,
        thirds(joined),
    )
    return joined, *sums


def _stats_like(query: Tensor, heads: int) -> Tensor:
    return query.new_empty(query.shape[0], heads, 2, *query.shape[2:], dtype=COMPUTE[query.dtype])


def _sums_like(stats: Tensor, positions: tuple[Tensor | None, ...]) -> list[Tensor]:
    return [stats.new_empty(0) if t is None else stats.new_empty(t.shape) for t in positions]


@attention.register_fake
def _(query: Tensor, _key: Tensor, value: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    out = value.new_empty(value.shape[0], value.shape[1], *query.shape[2:])
    return out, _stats_like(query, rest[3])


@attention_packed.register_fake
def _(packed: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    batch, channels, *size = packed.shape
    return packed.new_empty(batch, channels // 3, *size), _stats_like(packed, rest[3])


@attention_backward.register_fake
def _(
    _grad: Tensor, stats: Tensor, query: Tensor, key: Tensor, value: Tensor, *rest: Any
) -> tuple[Tensor, ...]:
    return (
        *(t.new_empty(t.shape) for t in (query, key, value)),
        *_sums_like(stats, rest[:3]),
    )


@attention_packed_backward.register_fake
def _(_grad: Tensor, stats: Tensor, packed: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    return packed.new_empty(packed.shape), *_sums_like(stats, rest[:3])


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    tensors = [i for i, value in enumerate(inputs) if isinstance(value, Tensor)]
    ctx.where = tensors
    ctx.others = [None if i in tensors else value for i, value in enumerate(inputs)]
    ctx.save_for_backward(output[1], *(inputs[i] for i in tensors))


def _restore(ctx: Any) -> tuple[Tensor, list[Any]]:
    stats, *tensors = ctx.saved_tensors
    inputs = list(ctx.others)
    for i, tensor in zip(ctx.where, tensors, strict=True):
        inputs[i] = tensor
    return stats, inputs


def _given(sums: tuple[Tensor, ...], positions: list[Tensor | None]) -> list[Tensor | None]:
    return [None if t is None else s.to(t.dtype) for s, t in zip(sums, positions, strict=True)]


def _attention_gradient(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    stats, inputs = _restore(ctx)
    if torch.is_grad_enabled():
        return *_differentiable(grad, *inputs), *(None,) * 7
    *grads, bias, row, column = attention_backward(grad, stats, *inputs)
    return *grads, *_given((bias, row, column), inputs[3:6]), *(None,) * 7


def _packed_gradient(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    stats, inputs = _restore(ctx)
    if torch.is_grad_enabled():
        *apart, bias, row, column = _differentiable(grad, *thirds(inputs[0]), *inputs[1:])
        pieces = [piece for piece in apart if piece is not None]
        joined = torch.cat(pieces, dim=1) if pieces else None
        return joined, bias, row, column, *(None,) * 7
    joined, *sums = attention_packed_backward(grad, stats, *inputs)
    return joined, *_given(tuple(sums), inputs[1:4]), *(None,) * 7


def _differentiable(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    row: Tensor | None,
    column: Tensor | None,
    heads: int,
    scale: float,
    mask: bool,
    *window: Ints,
) -> tuple[Tensor | None, ...]:
    """The same gradients through `torch.autograd.grad` of the unfused form."""
    from attnlab.evolution.attention import attention_maps
    from attnlab.evolution.primitives import av

    # Aliases: query, key and value may be one tensor, or computed from each other.
    inputs = [None if t is None else t.view_as(t) for t in (query, key, value, bias, row, column)]
    query_, key_, value_, bias_, row_, column_ = inputs
    assert query_ is not None
    assert key_ is not None
    assert value_ is not None
    shape = _ops.window_of(*window)
    maps = attention_maps(
        query_,
        key_,
        heads,
        shape,
        scale=scale,
        bias=bias_,
        relative=None if row_ is None or column_ is None else (row_, column_),
        boundary="mask" if mask else "zero",
    )
    out = av(maps, value_, shape).to(grad.dtype)
    wanted = [t for t in inputs if t is not None and t.requires_grad]
    found = iter(torch.autograd.grad(out, wanted, grad, create_graph=True))
    return tuple(next(found) if t is not None and t.requires_grad else None for t in inputs)


attention.register_autograd(_attention_gradient, setup_context=_keep)
attention_packed.register_autograd(_packed_gradient, setup_context=_keep)
