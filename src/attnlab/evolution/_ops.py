"""The primitives as torch operators: `torch.ops.attnlab.av`, `qk`, `sc` and `spanned_av`.

Here are their shapes, their derivatives (these operators again) and their default kernel, which is
plain torch on any device; `_kernels` registers the faster ones.

`spanned_av` aggregates with maps that are a 1×1 convolution of features, as involution's are. The
maps, K² numbers per group and pixel, are several times as large as the features that they are made
of and that they act on. The operator does not keep them for the backward pass but makes them again;
on the native kernels there are a few rows of them at a time.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.library import custom_op

from attnlab._types import Saved
from attnlab.evolution._implementation import SpanCall
from attnlab.evolution._plain import EAGER
from attnlab.evolution.window import Window

Gradients = tuple[Tensor | None, ...]


@custom_op("attnlab::av", mutates_args=())
def av_operator(maps: Tensor, x: Tensor, window: list[int]) -> Tensor:
    return EAGER.av(maps, x, window)


@custom_op("attnlab::qk", mutates_args=())
def qk_operator(q: Tensor, x: Tensor, groups: int, window: list[int]) -> Tensor:
    return EAGER.qk(q, x, groups, window)


@custom_op("attnlab::sc", mutates_args=())
def sc_operator(maps: Tensor, y: Tensor, size: list[int], window: list[int]) -> Tensor:
    return EAGER.sc(maps, y, size, window)


@custom_op("attnlab::spanned_av", mutates_args=())
def spanned_av_operator(
    features: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    groups: int,
    window: list[int],
) -> Tensor:
    return EAGER.spanned_av(SpanCall(features, x, weight, bias, groups, window))


@custom_op("attnlab::spanned_av_backward", mutates_args=())
def spanned_av_backward(
    grad: Tensor,
    features: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    groups: int,
    window: list[int],
) -> list[Tensor]:
    return EAGER.spanned_av_backward(grad, SpanCall(features, x, weight, bias, groups, window))


@av_operator.register_fake
def _(maps: Tensor, x: Tensor, _window: list[int]) -> Tensor:
    return x.new_empty(x.shape[0], x.shape[1], *maps.shape[3:])


@qk_operator.register_fake
def _(q: Tensor, x: Tensor, groups: int, window: list[int]) -> Tensor:
    return x.new_empty(x.shape[0], groups, Window.from_flat(window).taps, *q.shape[2:])


@sc_operator.register_fake
def _(_maps: Tensor, y: Tensor, size: list[int], _window: list[int]) -> Tensor:
    return y.new_empty(y.shape[0], y.shape[1], *size)


@spanned_av_operator.register_fake
def _(features: Tensor, x: Tensor, *_: object) -> Tensor:
    return x.new_empty(*x.shape[:2], *features.shape[2:])


@spanned_av_backward.register_fake
def _(
    _grad: Tensor, features: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, *_: object
) -> list[Tensor]:
    given = [features, x, weight, *([] if bias is None else [bias])]
    return [t.new_empty(t.shape) for t in given]


class _PrimitiveContext(Saved, Protocol):
    window: list[int]


def _keep(ctx: _PrimitiveContext, inputs: tuple, output: Tensor) -> None:  # noqa: ARG001
    ctx.save_for_backward(*inputs[:2])
    ctx.window = inputs[-1]


def _av_gradients(ctx: _PrimitiveContext, grad: Tensor) -> Gradients:
    maps, x = ctx.saved_tensors
    to_maps, to_x = ctx.needs_input_grad[:2]
    return (
        qk_operator(grad, x, maps.shape[1], ctx.window) if to_maps else None,
        sc_operator(maps, grad, list(x.shape[2:]), ctx.window) if to_x else None,
        None,
    )


def _qk_gradients(ctx: _PrimitiveContext, grad: Tensor) -> Gradients:
    q, x = ctx.saved_tensors
    to_q, to_x = ctx.needs_input_grad[:2]
    return (
        av_operator(grad, x, ctx.window) if to_q else None,
        sc_operator(grad, q, list(x.shape[2:]), ctx.window) if to_x else None,
        None,
        None,
    )


def _sc_gradients(ctx: _PrimitiveContext, grad: Tensor) -> Gradients:
    maps, y = ctx.saved_tensors
    to_maps, to_y = ctx.needs_input_grad[:2]
    return (
        qk_operator(y, grad, maps.shape[1], ctx.window) if to_maps else None,
        av_operator(maps, grad, ctx.window) if to_y else None,
        None,
        None,
    )


class _SpanContext(Saved, Protocol):
    groups: int
    window: list[int]


def _keep_span(ctx: _SpanContext, inputs: tuple, output: Tensor) -> None:  # noqa: ARG001
    *tensors, ctx.groups, ctx.window = inputs
    ctx.save_for_backward(*(t for t in tensors if t is not None))


def _span_gradients(ctx: _SpanContext, grad: Tensor) -> Gradients:
    found: list[Tensor] | list[Tensor | None]
    if torch.is_grad_enabled():
        found = _differentiable_span(grad, ctx)
    else:
        call = _saved_call(ctx.saved_tensors, ctx)
        found = spanned_av_backward(grad, *call)
    return *found, *(None,) * (6 - len(found))


def _saved_call(
    tensors: tuple[Tensor, ...], ctx: _SpanContext
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, int, list[int]]:
    features, x, weight, *bias = tensors
    return features, x, weight, bias[0] if bias else None, ctx.groups, ctx.window


def _differentiable_span(grad: Tensor, ctx: _SpanContext) -> list[Tensor | None]:
    """Return the same gradients by `torch.autograd.grad` of maps and `av`, for a second
    derivative."""
    aliases = tuple(t.view_as(t) for t in ctx.saved_tensors)
    call = SpanCall(*_saved_call(aliases, ctx))
    return gradients_again(av_operator(call.maps(), call.x, call.window), aliases, grad)


def gradients_again(out: Tensor, aliases: tuple[Tensor, ...], grad: Tensor) -> list[Tensor | None]:
    """The gradients of `out`, differentiable themselves; None for what asks for none."""
    wanted = [t for t in aliases if t.requires_grad]
    found = iter(torch.autograd.grad(out, wanted, grad, create_graph=True))
    return [next(found) if t.requires_grad else None for t in aliases]


av_operator.register_autograd(_av_gradients, setup_context=_keep)
qk_operator.register_autograd(_qk_gradients, setup_context=_keep)
sc_operator.register_autograd(_sc_gradients, setup_context=_keep)
spanned_av_operator.register_autograd(_span_gradients, setup_context=_keep_span)
