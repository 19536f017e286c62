"""Three primitives that are closed under differentiation.

    av(a, x)[c, i] = Σ_k a[g(c), k, i] · x[c, i + k]       involution; attention times values
    qk(q, x)[g, k, i] = Σ_{c in g} q[c, i] · x[c, i + k]   attention scores; gradient of av in a
    sc(a, y)[c, j] = Σ_k a[g(c), k, j - k] · y[c, j - k]   adjoint of av in x

    ∂av/∂a = qk, ∂av/∂x = sc;  ∂qk/∂q = av, ∂qk/∂x = sc;  ∂sc/∂a = qk, ∂sc/∂y = av

so derivatives of every order are these three again. `i + k` stands for s·i + d·k - p of the window.
Maps are (B, G, K_h·K_w, H_out, W_out); group g holds C/G consecutive channels.

Each primitive runs the native kernel when there is one for its operands (CPU; float32, float64,
bfloat16), and otherwise shifted accumulation in torch; under `torch.compile` without the native
kernel, a form that the compiler turns into one gather loop.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnlab._errors import InputError
from attnlab.evolution import _ops
from attnlab.evolution._shift import av_shift, qk_shift, sc_shift
from attnlab.evolution._view import av_view, qk_view, sc_view
from attnlab.evolution.window import Pair, Window


def av(maps: Tensor, x: Tensor, window: Window) -> Tensor:
    """Aggregate x (B, C, H, W) with one map per group of channels: (B, C, H_out, W_out)."""
    _check_rank(maps=(maps, 5), x=(x, 4))
    expected = (x.shape[0], maps.shape[1], window.taps, *window.output_size(*x.shape[2:]))
    _check_shape("maps", "(B, G, K_h·K_w, H_out, W_out)", maps, expected)
    check_groups(x.shape[1], maps.shape[1])
    maps, x = same_dtype(maps, x)
    if _ops.runs_native(maps, x):
        return _ops.av(maps, x, *map(list, window))
    return _Av.apply(maps, x, window)


def qk(q: Tensor, x: Tensor, groups: int, window: Window) -> Tensor:
    """Each q (B, C, H_out, W_out) times its window of x: (B, groups, K_h·K_w, H_out, W_out)."""
    _check_rank(q=(q, 4), x=(x, 4))
    expected = (*x.shape[:2], *window.output_size(*x.shape[2:]))
    _check_shape("q", "(B, C, H_out, W_out)", q, expected)
    check_groups(x.shape[1], groups)
    q, x = same_dtype(q, x)
    if _ops.runs_native(q, x):
        return _ops.qk(q, x, groups, *map(list, window))
    return _Qk.apply(q, x, groups, window)


def sc(maps: Tensor, y: Tensor, size: Pair, window: Window) -> Tensor:
    """The adjoint of `av` in x: y (B, C, H_out, W_out) back to (B, C, *size)."""
    _check_rank(maps=(maps, 5), y=(y, 4))
    out_size = window.output_size(*size)
    _check_shape("y", "(B, C, H_out, W_out)", y, (*y.shape[:2], *out_size))
    expected = (y.shape[0], maps.shape[1], window.taps, *out_size)
    _check_shape("maps", "(B, G, K_h·K_w, H_out, W_out)", maps, expected)
    check_groups(y.shape[1], maps.shape[1])
    maps, y = same_dtype(maps, y)
    if _ops.runs_native(maps, y):
        return _ops.sc(maps, y, list(size), *map(list, window))
    return _Sc.apply(maps, y, size, window)


def _check_rank(**tensors: tuple[Tensor, int]) -> None:
    for name, (tensor, rank) in tensors.items():
        if tensor.dim() != rank:
            raise InputError(
                f"Expected {name} to have {rank} axes but got shape {tuple(tensor.shape)}."
            )


def _check_shape(name: str, meaning: str, got: Tensor, expected: tuple[int, ...]) -> None:
    if tuple(got.shape) != expected:
        raise InputError(
            f"Expected {name} of shape {meaning} = {expected} but got {tuple(got.shape)}."
        )


def check_groups(channels: int, groups: int) -> None:
    """Raise unless `groups` divides `channels`."""
    if groups < 1 or channels % groups:
        divisors = [n for n in range(1, channels + 1) if channels % n == 0]
        near = min(divisors, key=lambda n: abs(n - groups))
        raise InputError(
            f"Expected groups to divide the {channels} channels but got {groups}. "
            f"The nearest that does is {near}."
        )


def same_dtype(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors in one dtype: autocast's where it is on (never from float64), else the widest."""
    device = tensors[0].device.type
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        dtype = torch.promote_types(dtype, tensor.dtype)
    if torch.is_autocast_enabled(device) and dtype != torch.float64:
        dtype = torch.get_autocast_dtype(device)
    return tuple(tensor.to(dtype) for tensor in tensors)


def _computed(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Half types accumulate in float32 here, as they do in the native kernel."""
    if a.dtype in (torch.float16, torch.bfloat16):
        return a.float(), b.float()
    return a, b


class _Av(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, maps: Tensor, x: Tensor, window: Window) -> Tensor:
        ctx.save_for_backward(maps, x)
        ctx.window = window
        return _plain_av(maps, x, window)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        maps, x = ctx.saved_tensors
        for_maps, for_x, _ = ctx.needs_input_grad
        size = (x.shape[2], x.shape[3])
        return (
            qk(grad, x, maps.shape[1], ctx.window) if for_maps else None,
            sc(maps, grad, size, ctx.window) if for_x else None,
            None,
        )


class _Qk(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, x: Tensor, groups: int, window: Window) -> Tensor:
        ctx.save_for_backward(q, x)
        ctx.window = window
        return _plain_qk(q, x, groups, window)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, x = ctx.saved_tensors
        for_q, for_x, _, _ = ctx.needs_input_grad
        size = (x.shape[2], x.shape[3])
        return (
            av(grad, x, ctx.window) if for_q else None,
            sc(grad, q, size, ctx.window) if for_x else None,
            None,
            None,
        )


class _Sc(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, maps: Tensor, y: Tensor, size: Pair, window: Window) -> Tensor:
        ctx.save_for_backward(maps, y)
        ctx.window = window
        return _plain_sc(maps, y, size, window)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        maps, y = ctx.saved_tensors
        for_maps, for_y, _, _ = ctx.needs_input_grad
        return (
            qk(y, grad, maps.shape[1], ctx.window) if for_maps else None,
            av(maps, grad, ctx.window) if for_y else None,
            None,
            None,
        )


def _plain_av(maps: Tensor, x: Tensor, window: Window) -> Tensor:
    form = av_view if torch.compiler.is_compiling() else av_shift
    first, second = _computed(maps, x)
    return form(first, second, window).to(x.dtype)


def _plain_qk(q: Tensor, x: Tensor, groups: int, window: Window) -> Tensor:
    form = qk_view if torch.compiler.is_compiling() else qk_shift
    first, second = _computed(q, x)
    return form(first, second, groups, window).to(x.dtype)


def _plain_sc(maps: Tensor, y: Tensor, size: Pair, window: Window) -> Tensor:
    form = sc_view if torch.compiler.is_compiling() else sc_shift
    first, second = _computed(maps, y)
    return form(first, second, size, window).to(y.dtype)
