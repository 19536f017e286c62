"""The operators on the Triton kernels."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from attnlab._errors import InputError
from attnlab.evolution._implementation import (
    AttentionCall,
    Implementation,
    SpanCall,
    computing,
    planes,
    span_gradients_by_primitives,
    spanned_by_primitives,
    thirds,
)
from attnlab.evolution._plain import Plain, Primitives, whole_batch
from attnlab.evolution._triton.kernels.attention import attention_kernel
from attnlab.evolution._triton.kernels.attention_backward import key_kernel, query_kernel
from attnlab.evolution._triton.kernels.maps import av_kernel, qk_kernel, sc_kernel
from attnlab.evolution._triton.kernels.position_gradients import position_kernel
from attnlab.evolution._triton.positions import Positions
from attnlab.evolution._triton.tuning import Blocks, launch, power
from attnlab.evolution.window import Sizes, Window

DEEPEST = 128
"""Channels of a head that one program can hold; deeper attention is made of the primitives."""
Arguments = dict[str, Any]
"""What a kernel is started with, by the name of its parameter: tensors, numbers and types."""
_TYPES = {torch.float32: tl.float32, torch.float64: tl.float64}


class Triton(Implementation):
    """Every method starts kernels in which each element of an output has one writer."""

    def av(self, maps: Tensor, x: Tensor, window: list[int]) -> Tensor:
        maps, x = planes(maps), planes(x)
        out = x.new_empty(x.shape[0], x.shape[1], *maps.shape[3:])
        arguments = {
            "maps": maps,
            "x": x,
            "maps_batch": maps.stride(0),
            "x_batch": x.stride(0),
            **_sizes(x.shape[1] // maps.shape[1], x.shape[2:], out.shape[2:], window),
        }
        return _by_channels(av_kernel, arguments, out, maps.shape[1])

    def sc(self, maps: Tensor, y: Tensor, size: list[int], window: list[int]) -> Tensor:
        maps, y = planes(maps), planes(y)
        out = y.new_empty(*y.shape[:2], *size)
        arguments = {
            "maps": maps,
            "y": y,
            "maps_batch": maps.stride(0),
            "y_batch": y.stride(0),
            **_sizes(y.shape[1] // maps.shape[1], size, y.shape[2:], window),
        }
        return _by_channels(sc_kernel, arguments, out, maps.shape[1])

    def qk(self, q: Tensor, x: Tensor, groups: int, window: list[int]) -> Tensor:
        q, x = planes(q), planes(x)
        shape = Window.from_flat(window)
        out = x.new_empty(x.shape[0], groups, shape.taps, *q.shape[2:])
        channels, pixels = x.shape[1] // groups, math.prod(q.shape[2:])
        arguments = {
            "q": q,
            "x": x,
            "out": out,
            "q_batch": q.stride(0),
            "x_batch": x.stride(0),
            "groups": groups,
            "channels": channels,
            "COMPUTE": _TYPES[computing(x.dtype)],
            **_sizes(channels, x.shape[2:], q.shape[2:], window),
        }
        rows = x.shape[0] * groups * (shape.taps // shape.kernel_size[-1])
        with _on(out):
            launch(
                qk_kernel,
                arguments,
                lambda blocks: rows * triton.cdiv(pixels, blocks.pixels),
                channels,
                pixels,
            )
        return out

    def spanned_av(self, call: SpanCall) -> Tensor:
        return spanned_by_primitives(self, call)

    def spanned_av_backward(self, grad: Tensor, call: SpanCall) -> list[Tensor]:
        return span_gradients_by_primitives(self, grad, call)

    def attention(self, call: AttentionCall) -> tuple[Tensor, Tensor]:
        query, key, value = map(planes, call.operands())
        if call.depth() > DEEPEST:
            return _UNFUSED.attention(call)
        out = value.new_empty(query.shape[0], value.shape[1], *query.shape[2:])
        stats = torch.empty(
            (query.shape[0], call.heads, 2, *query.shape[2:]),
            dtype=computing(query.dtype),
            device=query.device,
        )
        positions = Positions(call, stats)
        shared = _attention_arguments(query, key, value, positions, call)
        arguments = {**shared, "out": out, "stats": stats, "MASK": call.mask}
        _by_pixels(attention_kernel, arguments, call, query.shape[2:])
        return out, stats

    def attention_backward(self, grad: Tensor, stats: Tensor, call: AttentionCall) -> list[Tensor]:
        query, key, value = map(planes, call.operands())
        if call.depth() > DEEPEST:
            return _UNFUSED.attention_backward(grad, stats, call)
        grad, stats = planes(grad), stats.contiguous()
        gradients = [t.new_empty(t.shape) for t in call.parts]
        to_query, to_key, to_value = thirds(gradients)
        positions = Positions(call, stats)
        deltas = stats.new_empty(query.shape[0], call.heads, *query.shape[2:])
        shared = _attention_arguments(query, key, value, positions, call)
        shared |= {"grad": grad, "grad_batch": grad.stride(0), "stats": stats, "deltas": deltas}
        to_queries = {"q_grad": to_query, "q_grad_batch": to_query.stride(0), "MASK": call.mask}
        _by_pixels(query_kernel, {**shared, **to_queries}, call, query.shape[2:])
        to_keys = {
            "k_grad": to_key,
            "v_grad": to_value,
            "k_grad_batch": to_key.stride(0),
            "v_grad_batch": to_value.stride(0),
        }
        _by_pixels(key_kernel, {**shared, **to_keys}, call, key.shape[2:])
        if positions.given:
            to_positions = {
                "bias_grad": positions.bias_sums,
                "embedding_grad": positions.embedding_sums,
                "MASK": call.mask,
            }
            taps = call.shape.taps
            _by_pixels(position_kernel, {**shared, **to_positions}, call, query.shape[2:], taps)
        return gradients + positions.gradients()


def _sizes(
    channels: int, size: Sequence[int], out_size: Sequence[int], window: list[int]
) -> Arguments:
    """Sizes and window with three axes, as every kernel takes them."""
    planes_of_group = max(channels, Window.from_flat(window).taps)
    if planes_of_group * max(math.prod(size), math.prod(out_size)) >= 2**31:
        raise InputError(
            "The Triton kernels count the numbers of one group of one image in 32 bits, and "
            f"{planes_of_group} planes of {' × '.join(map(str, size))} are too many. Use more "
            "groups, or `with attnlab.evolution.use_native(False):`."
        )
    missing = 3 - len(size)
    frames, height, width = (1,) * missing + tuple(size)
    out_frames, out_height, out_width = (1,) * missing + tuple(out_size)
    parts = zip(Window.from_flat(window), (1, 1, 1, 0), strict=True)
    return {
        "frames": frames,
        "height": height,
        "width": width,
        "out_frames": out_frames,
        "out_height": out_height,
        "out_width": out_width,
        "WINDOW": tuple(n for part, one in parts for n in (one,) * missing + part),
    }


def _attention_arguments(
    query: Tensor, key: Tensor, value: Tensor, positions: Positions, call: AttentionCall
) -> Arguments:
    """Return the arguments that the four attention kernels share."""
    heads = call.heads
    return {
        "q": query,
        "k": key,
        "v": value,
        "bias": positions.bias,
        "embedding": positions.embedding,
        "q_batch": query.stride(0),
        "k_batch": key.stride(0),
        "v_batch": value.stride(0),
        "heads": heads,
        "depth": query.shape[1] // heads,
        "value_depth": value.shape[1] // heads,
        "SCALE": call.scale,
        "HAS_BIAS": positions.has_bias,
        "HAS_RELATIVE": positions.has_relative,
        "COMPUTE": _TYPES[computing(query.dtype)],
        "BLOCK_V": power(value.shape[1] // heads),
        **_sizes(call.depth(), key.shape[2:], query.shape[2:], call.window),
    }


def _by_channels(kernel: object, arguments: Arguments, out: Tensor, groups: int) -> Tensor:
    """One program per group, block of channels and block of output pixels."""
    channels, pixels = out.shape[1] // groups, math.prod(out.shape[2:])
    arguments |= {
        "out": out,
        "groups": groups,
        "channels": channels,
        "COMPUTE": _TYPES[computing(out.dtype)],
    }

    def programs(blocks: Blocks) -> int:
        across = triton.cdiv(channels, blocks.channels)
        return out.shape[0] * groups * across * triton.cdiv(pixels, blocks.pixels)

    with _on(out):
        launch(kernel, arguments, programs, channels, pixels)
    return out


def _by_pixels(
    kernel: object, arguments: Arguments, call: AttentionCall, size: Sizes, taps: int | None = None
) -> None:
    """One program per head and block of pixels; or per head and tap, which loops over pixels."""
    first = call.parts[0]
    pixels, images = math.prod(size), first.shape[0] * call.heads

    def programs(blocks: Blocks) -> int:
        return images * (triton.cdiv(pixels, blocks.pixels) if taps is None else taps)

    with _on(first):
        launch(kernel, arguments, programs, call.depth(), pixels, whole=True)


def _on(tensor: Tensor) -> contextlib.AbstractContextManager[object]:
    """Triton starts kernels on the current device, whatever the tensors are on."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else contextlib.nullcontext()


TRITON = Triton()


def _av(maps: Tensor, x: Tensor, window: Window) -> Tensor:
    return TRITON.av(maps, x, window.flat())


def _qk(q: Tensor, x: Tensor, groups: int, window: Window) -> Tensor:
    return TRITON.qk(q, x, groups, window.flat())


def _sc(maps: Tensor, y: Tensor, size: Sizes, window: Window) -> Tensor:
    return TRITON.sc(maps, y, list(size), window.flat())


_UNFUSED = Plain(Primitives(_av, _qk, _sc, whole_batch))
