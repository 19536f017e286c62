"""The native kernels as torch operators: `torch.ops.attnlab.av`, `qk`, `sc`, `attention`, ...

Each has a fake implementation (shapes only), so that compile and export see through it, and a
derivative made of these operators again.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.library import custom_op

from attnlab.evolution import native
from attnlab.evolution.native.abi import STORAGE, operand, planes, problem
from attnlab.evolution.window import Window


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _has_native() -> bool:
    return native.library() is not None


def runs_native(*tensors: Tensor) -> bool:
    """Whether the native kernels take these operands."""
    return (
        all(t.device.type == "cpu" and t.dtype in STORAGE for t in tensors)
        and all(t.numel() > 0 for t in tensors)
        and _has_native()
    )


def window_of(kernel: list[int], stride: list[int], dilation: list[int], pad: list[int]) -> Window:
    """The window from the operators' integer lists."""
    return Window(*((values[0], values[1]) for values in (kernel, stride, dilation, pad)))


def call(name: str, dtype: torch.dtype, *arguments: object) -> None:
    """Call the kernel `name` for storage `dtype`."""
    library = native.library()
    if library is None:
        raise RuntimeError(f"attnlab::{name} needs the native kernels: {native.native_status()}")
    getattr(library, f"attnlab_{name}_{STORAGE[dtype]}")(*arguments)


@custom_op("attnlab::av", mutates_args=(), device_types="cpu")
def av(
    maps: Tensor,
    x: Tensor,
    kernel: list[int],
    stride: list[int],
    dilation: list[int],
    pad: list[int],
) -> Tensor:
    maps, x = planes(maps), planes(x)
    batch, groups, _, *out_size = maps.shape
    out = x.new_empty(batch, x.shape[1], *out_size)
    window = window_of(kernel, stride, dilation, pad)
    sizes = problem(batch, groups, (x.shape[2], x.shape[3]), (out_size[0], out_size[1]), window)
    channels = x.shape[1] // groups
    call("av", x.dtype, sizes, channels, *operand(maps), *operand(x), out.data_ptr())
    return out


@custom_op("attnlab::qk", mutates_args=(), device_types="cpu")
def qk(
    q: Tensor,
    x: Tensor,
    groups: int,
    kernel: list[int],
    stride: list[int],
    dilation: list[int],
    pad: list[int],
) -> Tensor:
    q, x = planes(q), planes(x)
    window = window_of(kernel, stride, dilation, pad)
    out_size = (q.shape[2], q.shape[3])
    out = x.new_empty(x.shape[0], groups, window.taps, *out_size)
    sizes = problem(x.shape[0], groups, (x.shape[2], x.shape[3]), out_size, window)
    channels = x.shape[1] // groups
    call("qk", x.dtype, sizes, channels, *operand(q), *operand(x), out.data_ptr())
    return out


@custom_op("attnlab::sc", mutates_args=(), device_types="cpu")
def sc(
    maps: Tensor,
    y: Tensor,
    size: list[int],
    kernel: list[int],
    stride: list[int],
    dilation: list[int],
    pad: list[int],
) -> Tensor:
    maps, y = planes(maps), planes(y)
    batch, groups = maps.shape[:2]
    out = y.new_empty(batch, y.shape[1], *size)
    window = window_of(kernel, stride, dilation, pad)
    sizes = problem(batch, groups, (size[0], size[1]), (y.shape[2], y.shape[3]), window)
    channels = y.shape[1] // groups
    call("sc", y.dtype, sizes, channels, *operand(maps), *operand(y), out.data_ptr())
    return out


@av.register_fake
def _(maps: Tensor, x: Tensor, *_: list[int]) -> Tensor:
    return x.new_empty(x.shape[0], x.shape[1], maps.shape[3], maps.shape[4])


@qk.register_fake
def _(q: Tensor, x: Tensor, groups: int, kernel: list[int], *_: list[int]) -> Tensor:
    return x.new_empty(x.shape[0], groups, kernel[0] * kernel[1], q.shape[2], q.shape[3])


@sc.register_fake
def _(_maps: Tensor, y: Tensor, size: list[int], *_: list[int]) -> Tensor:
    return y.new_empty(y.shape[0], y.shape[1], *size)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001
    ctx.save_for_backward(*inputs[:2])
    ctx.window = inputs[-4:]


def _av_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    maps, x = ctx.saved_tensors
    return (
        qk(grad, x, maps.shape[1], *ctx.window) if ctx.needs_input_grad[0] else None,
        sc(maps, grad, list(x.shape[2:]), *ctx.window) if ctx.needs_input_grad[1] else None,
        *(None,) * 4,
    )


def _qk_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    q, x = ctx.saved_tensors
    return (
        av(grad, x, *ctx.window) if ctx.needs_input_grad[0] else None,
        sc(grad, q, list(x.shape[2:]), *ctx.window) if ctx.needs_input_grad[1] else None,
        *(None,) * 5,
    )


def _sc_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    maps, y = ctx.saved_tensors
    return (
        qk(y, grad, maps.shape[1], *ctx.window) if ctx.needs_input_grad[0] else None,
        av(maps, grad, *ctx.window) if ctx.needs_input_grad[1] else None,
        *(None,) * 5,
    )


av.register_autograd(_av_backward, setup_context=_keep)
qk.register_autograd(_qk_backward, setup_context=_keep)
sc.register_autograd(_sc_backward, setup_context=_keep)
