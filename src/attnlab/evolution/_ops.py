"""The three primitives as torch operators: `torch.ops.attnlab.av`, `qk`, `sc`.

Here are their shapes, their derivatives (these operators again) and their default kernel, which is
plain torch on any device; `_kernels` registers the faster ones.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.library import custom_op

from attnlab.evolution._plain import EAGER
from attnlab.evolution.window import Window

Gradients = tuple[Tensor | None, ...]


@custom_op("attnlab::av", mutates_args=())
def av(maps: Tensor, x: Tensor, window: list[int]) -> Tensor:
    return EAGER.av(maps, x, window)


@custom_op("attnlab::qk", mutates_args=())
def qk(q: Tensor, x: Tensor, groups: int, window: list[int]) -> Tensor:
    return EAGER.qk(q, x, groups, window)


@custom_op("attnlab::sc", mutates_args=())
def sc(maps: Tensor, y: Tensor, size: list[int], window: list[int]) -> Tensor:
    return EAGER.sc(maps, y, size, window)


@av.register_fake
def _(maps: Tensor, x: Tensor, _window: list[int]) -> Tensor:
    return x.new_empty(x.shape[0], x.shape[1], *maps.shape[3:])


@qk.register_fake
def _(q: Tensor, x: Tensor, groups: int, window: list[int]) -> Tensor:
    return x.new_empty(x.shape[0], groups, Window.from_flat(window).taps, *q.shape[2:])


@sc.register_fake
def _(_maps: Tensor, y: Tensor, size: list[int], _window: list[int]) -> Tensor:
    return y.new_empty(y.shape[0], y.shape[1], *size)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001
    ctx.save_for_backward(*inputs[:2])
    ctx.window = inputs[-1]


def _av_gradients(ctx: Any, grad: Tensor) -> Gradients:
    maps, x = ctx.saved_tensors
    return (
        qk(grad, x, maps.shape[1], ctx.window) if ctx.needs_input_grad[0] else None,
        sc(maps, grad, list(x.shape[2:]), ctx.window) if ctx.needs_input_grad[1] else None,
        None,
    )


def _qk_gradients(ctx: Any, grad: Tensor) -> Gradients:
    q, x = ctx.saved_tensors
    return (
        av(grad, x, ctx.window) if ctx.needs_input_grad[0] else None,
        sc(grad, q, list(x.shape[2:]), ctx.window) if ctx.needs_input_grad[1] else None,
        None,
        None,
    )


def _sc_gradients(ctx: Any, grad: Tensor) -> Gradients:
    maps, y = ctx.saved_tensors
    return (
        qk(y, grad, maps.shape[1], ctx.window) if ctx.needs_input_grad[0] else None,
        av(maps, grad, ctx.window) if ctx.needs_input_grad[1] else None,
        None,
        None,
    )


av.register_autograd(_av_gradients, setup_context=_keep)
qk.register_autograd(_qk_gradients, setup_context=_keep)
sc.register_autograd(_sc_gradients, setup_context=_keep)
