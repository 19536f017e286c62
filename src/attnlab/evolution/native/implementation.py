"""The operators on the native CPU kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import torch
from torch import Tensor

from attnlab.evolution._implementation import Implementation, computing, planes, thirds
from attnlab.evolution.native.abi import STORAGE, Attention, problem
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
        maps, x = planes(maps), planes(x)
        batch, groups, _, *out_size = maps.shape
        out = x.new_empty(batch, x.shape[1], *out_size)
        sizes = problem(batch, groups, x.shape[2:], out_size, window)
        channels = x.shape[1] // groups
        arguments = (*operand(maps), *operand(x), out.data_ptr())
        self._call("av", x.dtype, out_size[-1], sizes, channels, *arguments)
        return out

    def qk(self, q: Tensor, x: Tensor, groups: int, window: list[int]) -> Tensor:
        q, x = planes(q), planes(x)
        out = x.new_empty(x.shape[0], groups, Window.from_flat(window).taps, *q.shape[2:])
        sizes = problem(x.shape[0], groups, x.shape[2:], q.shape[2:], window)
        channels = x.shape[1] // groups
        arguments = (*operand(q), *operand(x), out.data_ptr())
        self._call("qk", x.dtype, q.shape[-1], sizes, channels, *arguments)
        return out

    def sc(self, maps: Tensor, y: Tensor, size: list[int], window: list[int]) -> Tensor:
        maps, y = planes(maps), planes(y)
        batch, groups = maps.shape[:2]
        out = y.new_empty(batch, y.shape[1], *size)
        sizes = problem(batch, groups, size, y.shape[2:], window)
        channels = y.shape[1] // groups
        arguments = (*operand(maps), *operand(y), out.data_ptr())
        self._call("sc", y.dtype, y.shape[-1], sizes, channels, *arguments)
        return out

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
        query, key, value = map(planes, thirds(parts))
        batch, size = query.shape[0], query.shape[2:]
        out = value.new_empty(batch, value.shape[1], *size)
        stats = value.new_empty(batch, heads, 2, *size, dtype=computing(value.dtype))
        kept = _positions(bias, relative, stats.dtype)
        self._call(
            "attention",
            query.dtype,
            size[-1],
            problem(batch, heads, key.shape[2:], size, window),
            _settings(query, value, kept, heads, scale, mask),
            *operand(query),
            *operand(key),
            *operand(value),
            out.data_ptr(),
            stats.data_ptr(),
        )
        return out, stats

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
        gradients = [torch.empty(t.shape, dtype=t.dtype) for t in parts]
        query, key, value = map(planes, thirds(parts))
        grad, stats, batch = planes(grad), stats.contiguous(), query.shape[0]
        kept = _positions(bias, relative, stats.dtype)
        # One sum per image and head: the total does not depend on the number of threads.
        sums = [None if t is None else stats.new_empty(batch, *t.shape) for t in kept]
        self._call(
            "attention_backward",
            query.dtype,
            query.shape[-1],
            problem(batch, heads, key.shape[2:], query.shape[2:], window),
            _settings(query, value, kept, heads, scale, mask),
            *operand(query),
            *operand(key),
            *operand(value),
            stats.data_ptr(),
            *operand(grad),
            *(item for g in thirds(gradients) for item in operand(g)),
            *(None if t is None else t.data_ptr() for t in sums),
        )
        given = ([] if bias is None else [bias]) + relative
        totals = [t.sum(0) for t in sums if t is not None]
        return gradients + [s.to(t.dtype) for s, t in zip(totals, given, strict=True)]


def halves_suit(columns: int, vector_bytes: int, item_bytes: int) -> bool:
    """Whether vectors of half the width leave fewer lanes of a short row empty.

    Only vectors of 64 bytes have a narrower variant. Beyond three halves the rest counts little.
    """
    half = vector_bytes // item_bytes // 2
    return vector_bytes == 64 and columns <= 3 * half and -(-columns // half) % 2 == 1


def _positions(
    bias: Tensor | None, relative: list[Tensor], compute: torch.dtype
) -> list[Tensor | None]:
    """Bias, row and column embedding as the kernels read them; None where there is none."""
    given = [bias, *(relative or (None, None))]
    return [None if t is None else t.to(compute).contiguous() for t in given]


def _settings(
    query: Tensor,
    value: Tensor,
    positions: list[Tensor | None],
    heads: int,
    scale: float,
    mask: bool,
) -> Attention:
    """The C structure; it holds addresses, so `positions` must outlive the call."""
    addresses = (None if t is None else t.data_ptr() for t in positions)
    depths = (query.shape[1] // heads, value.shape[1] // heads)
    return Attention(*depths, scale, mask, *addresses)


def operand(tensor: Tensor) -> tuple[int, int]:
    """Address and batch stride of a tensor with contiguous planes."""
    return tensor.data_ptr(), tensor.stride(0)
