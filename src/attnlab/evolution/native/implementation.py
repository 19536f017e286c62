"""The operators on the native CPU kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

from attnlab._errors import InputError
from attnlab.evolution._implementation import (
    AttentionCall,
    Implementation,
    SpanCall,
    computing,
    planes,
    thirds,
)
from attnlab.evolution._plain import Plain, Primitives
from attnlab.evolution._torch_forms import blocks
from attnlab.evolution.native import composed
from attnlab.evolution.native.abi import STORAGE, NativeAttention, native_problem, window_taps
from attnlab.evolution.native.composed import av_frames, qk_frames, sc_frames
from attnlab.evolution.window import Window


class Native(Implementation):
    """Calls a loaded object. Operands are not empty and of a type in `STORAGE`.

    `narrow` finds the object for short rows, if there is one; it may build it.
    """

    def __init__(
        self, library: ctypes.CDLL, narrow: Callable[[], ctypes.CDLL | None] = lambda: None
    ) -> None:
        self.library, self.narrow = library, narrow

    def _call(self, name: str, dtype: torch.dtype, columns: int, *arguments: object) -> None:
        vector = self.library.attnlab_vector_bytes()
        narrow = self.narrow() if halves_suit(columns, vector, computing(dtype).itemsize) else None
        library = self.library if narrow is None else narrow
        getattr(library, f"attnlab_{name}_{STORAGE[dtype]}")(*arguments)

    def av(self, maps: Tensor, x: Tensor, window: list[int]) -> Tensor:
        out = x.new_empty(x.shape[0], x.shape[1], *maps.shape[3:])
        self.av_into(out, maps, x, window)
        return out

    def qk(self, q: Tensor, x: Tensor, groups: int, window: list[int]) -> Tensor:
        out = x.new_empty(x.shape[0], groups, Window.from_flat(window).taps, *q.shape[2:])
        self.qk_into(out, q, x, window)
        return out

    def sc(self, maps: Tensor, y: Tensor, size: list[int], window: list[int]) -> Tensor:
        out = y.new_empty(y.shape[0], y.shape[1], *size)
        self.sc_into(out, maps, y, window)
        return out

    def av_into(self, out: Tensor, maps: Tensor, x: Tensor, window: list[int]) -> None:
        """`av` into a contiguous tensor."""
        sizes = (maps.shape[1], x.shape[2:], out.shape[2:])
        self._primitive("av", av_frames, out, maps, x, *sizes, window)

    def qk_into(self, out: Tensor, q: Tensor, x: Tensor, window: list[int]) -> None:
        """`qk` into a contiguous tensor."""
        sizes = (out.shape[1], x.shape[2:], q.shape[2:])
        self._primitive("qk", qk_frames, out, q, x, *sizes, window)

    def sc_into(self, out: Tensor, maps: Tensor, y: Tensor, window: list[int]) -> None:
        """`sc` into a contiguous tensor."""
        sizes = (maps.shape[1], out.shape[2:], y.shape[2:])
        self._primitive("sc", sc_frames, out, maps, y, *sizes, window)

    def _primitive(
        self,
        name: str,
        by_frames: Callable[..., None],
        out: Tensor,
        first: Tensor,
        second: Tensor,
        groups: int,
        size: Sequence[int],
        out_size: Sequence[int],
        window: list[int],
    ) -> None:
        taps, batch = window_taps(window), second.shape[0]
        maps, features = (out, first) if name == "qk" else (first, second)
        if (
            maps.shape[:3] != (batch, groups, taps)
            or features.shape[:2] != second.shape[:2]
            or second.shape[1] % groups
        ):
            raise _misfit(name, groups, taps, first, second)
        video = len(size) == 3
        # Frames add up in the output, so that has to be of the type that sums are made in.
        dtype = computing(out.dtype) if video else out.dtype
        first, second = planes(first.to(dtype)), planes(second.to(dtype))
        into = out.to(dtype)
        channels = second.shape[1] // groups

        def call(to: Tensor, first: Tensor, second: Tensor, add: bool) -> None:
            sizes = native_problem(second.shape[0], groups, size, out_size, window, add)
            addresses = (*operand(first), *operand(second), to.data_ptr())
            self._call(name, dtype, out_size[-1], sizes, channels, *addresses)

        if video:
            by_frames(call, into, first, second, Window.from_flat(window))
        else:
            call(into, first, second, False)
        if into is not out:
            out.copy_(into)

    def spanned_into(
        self,
        name: Literal["spanned_av", "spanned_sc"],
        out: Tensor,
        second: Tensor,
        call: SpanCall,
    ) -> None:
        """`av` or `sc` of `second`, images or sequences, into a contiguous tensor, with maps that
        are made from features where they are used."""
        features, weight, bias = call.features, call.weight, call.bias
        rows = call.groups * window_taps(call.window)
        if (
            weight.shape != (rows, features.shape[1])
            or (bias is not None and bias.shape != (rows,))
            or len(features) != len(second)
            or second.shape[1] % call.groups
        ):
            given = [weight, features, second] if bias is None else [weight, bias, features, second]
            raise _misfit(name, call.groups, window_taps(call.window), *given)
        features, second = planes(features.to(out.dtype)), planes(second.to(out.dtype))
        kept = [
            None if t is None else t.to(computing(out.dtype)).contiguous() for t in (weight, bias)
        ]
        size = second.shape[2:] if name == "spanned_av" else out.shape[2:]
        self._call(
            name,
            out.dtype,
            features.shape[-1],
            native_problem(len(out), call.groups, size, features.shape[2:], call.window),
            out.shape[1] // call.groups,
            features.shape[1],
            *(None if t is None else t.data_ptr() for t in kept),
            *operand(features),
            *operand(second),
            out.data_ptr(),
        )

    def spanned_av(self, call: SpanCall) -> Tensor:
        return composed.spanned_av_in_blocks(self, call)

    def spanned_av_backward(self, grad: Tensor, call: SpanCall) -> list[Tensor]:
        return composed.span_gradients_in_blocks(self, grad, call)

    def attention(self, call: AttentionCall) -> tuple[Tensor, Tensor]:
        if call.parts[0].dim() == 5:
            return self._by_primitives().attention(call)
        query, key, value = map(planes, call.operands())
        batch, size = query.shape[0], query.shape[2:]
        out = value.new_empty(batch, value.shape[1], *size)
        stats = value.new_empty(batch, call.heads, 2, *size, dtype=computing(value.dtype))
        kept = _positions(call, stats.dtype)
        self._call(
            "attention",
            query.dtype,
            size[-1],
            native_problem(batch, call.heads, key.shape[2:], size, call.window),
            _settings(query, value, kept, call),
            *operand(query),
            *operand(key),
            *operand(value),
            out.data_ptr(),
            stats.data_ptr(),
        )
        return out, stats

    def attention_backward(self, grad: Tensor, stats: Tensor, call: AttentionCall) -> list[Tensor]:
        if call.parts[0].dim() == 5:
            return self._by_primitives().attention_backward(grad, stats, call)
        gradients = [torch.empty(t.shape, dtype=t.dtype) for t in call.parts]
        query, key, value = map(planes, call.operands())
        grad, stats, batch = planes(grad), stats.contiguous(), query.shape[0]
        kept = _positions(call, stats.dtype)
        # One sum per image and head: the total does not depend on the number of threads.
        sums = [None if t is None else stats.new_empty(batch, *t.shape) for t in kept]
        self._call(
            "attention_backward",
            query.dtype,
            query.shape[-1],
            native_problem(batch, call.heads, key.shape[2:], query.shape[2:], call.window),
            _settings(query, value, kept, call),
            *operand(query),
            *operand(key),
            *operand(value),
            stats.data_ptr(),
            *operand(grad),
            *(item for g in thirds(gradients) for item in operand(g)),
            *(None if t is None else t.data_ptr() for t in sums),
        )
        totals = [t.sum(0) for t in sums if t is not None]
        return gradients + [s.to(t.dtype) for s, t in zip(totals, call.positions, strict=True)]

    def _by_primitives(self) -> Plain:
        """Attention of videos: an image at a time, with its maps in memory."""

        def of(name: str) -> Callable[..., Tensor]:
            return lambda *given: getattr(self, name)(*given[:-1], given[-1].flat())

        return Plain(Primitives(of("av"), of("qk"), of("sc"), blocks))


def halves_suit(columns: int, vector_bytes: int, item_bytes: int) -> bool:
    """Return whether vectors of half the width leave fewer lanes of a short row empty.

    Only vectors of 64 bytes have a narrower variant. Beyond three halves the rest counts little.
    """
    half = vector_bytes // item_bytes // 2
    return vector_bytes == 64 and columns <= 3 * half and -(-columns // half) % 2 == 1


def _misfit(name: str, groups: int, taps: int, *tensors: Tensor) -> InputError:
    shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors)
    return InputError(f"{name} of {groups} groups and {taps} taps got shapes {shapes}.")


def _positions(call: AttentionCall, compute: torch.dtype) -> list[Tensor | None]:
    """Bias, row and column embedding as the kernels read them; None if there is none."""
    given = [call.bias, *[None] * (2 - len(call.relative)), *call.relative]
    return [None if t is None else t.to(compute).contiguous() for t in given]


def _settings(
    query: Tensor, value: Tensor, positions: list[Tensor | None], call: AttentionCall
) -> NativeAttention:
    """The C structure; it holds addresses, so `positions` must outlive the call."""
    addresses = (None if t is None else t.data_ptr() for t in positions)
    depths = (query.shape[1] // call.heads, value.shape[1] // call.heads)
    row = 0 if positions[1] is None else positions[1].shape[1]
    return NativeAttention(*depths, row, call.scale, call.mask, *addresses)


def operand(tensor: Tensor) -> tuple[int, int]:
    """Address and batch stride of a tensor with contiguous planes."""
    return tensor.data_ptr(), tensor.stride(0)
