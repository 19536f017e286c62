"""The C interface of the native kernels: mirrors `src/geometry.h` and `src/kernels.cpp`."""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Sequence

import torch

from attnlab._errors import InputError
from attnlab.evolution.window import Window

STORAGE = {torch.float32: "float32", torch.float64: "float64", torch.bfloat16: "bfloat16"}
"""What the kernels can read and write; bfloat16 computes in float32."""

_POINTER, _INT, _REAL = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double


class NativeProblem(ctypes.Structure):
    """Sizes and window, passed to every kernel."""

    _fields_ = [
        (name, _INT)
        for name in (
            "batch",
            "groups",
            "height",
            "width",
            "out_height",
            "out_width",
            "kernel_h",
            "kernel_w",
            "stride_h",
            "stride_w",
            "dilation_h",
            "dilation_w",
            "pad_h",
            "pad_w",
            "plane",
            "out_plane",
            "group_taps",
            "accumulate",
            "threads",
        )
    ]


def native_problem(
    batch: int,
    groups: int,
    size: Sequence[int],
    out_size: Sequence[int],
    window: list[int],
    accumulate: bool = False,
) -> NativeProblem:
    """The problem for one call, on as many threads as torch uses. Kernels read it only.

    Raise InputError if sizes and window do not fit: a kernel would read what is not there.

    A sequence is an image of one row. Of a video this is the problem of one frame: the window is
    that of rows and columns, and the planes of a channel are as far apart as its frames are long.
    """
    sizes = (batch, groups, tuple(size), tuple(out_size), tuple(window))
    return _problem(*sizes, accumulate, torch.get_num_threads())


@functools.lru_cache(maxsize=1024)
def _problem(
    batch: int,
    groups: int,
    size: tuple[int, ...],
    out_size: tuple[int, ...],
    window: tuple[int, ...],
    accumulate: bool,
    threads: int,
) -> NativeProblem:
    parts = Window.from_flat(window)
    expected = parts.output_size(*size)
    if expected != out_size:
        raise InputError(
            f"Expected {expected} outputs of {size} inputs with this window but got {out_size}."
        )
    missing = max(0, 2 - parts.axes)
    flat = [
        number
        for part, one in zip(parts, (1, 1, 1, 0), strict=True)
        for number in ((one,) * missing + part)[-2:]
    ]
    return NativeProblem(
        batch,
        groups,
        *((1,) * missing + size)[-2:],
        *((1,) * missing + out_size)[-2:],
        *flat,
        math.prod(size),
        math.prod(out_size),
        parts.taps,
        accumulate,
        threads,
    )


def window_taps(window: list[int]) -> int:
    """Return how many pixels a window has; its sizes come first."""
    return math.prod(window[: len(window) // 4])


class NativeAttention(ctypes.Structure):
    """What attention adds: depths, scale, border, and the position terms (addresses or None)."""

    _fields_ = [
        ("depth", _INT),
        ("value_depth", _INT),
        ("row_depth", _INT),
        ("scale", _REAL),
        ("mask", _INT),
        ("bias", _POINTER),
        ("row", _POINTER),
        ("column", _POINTER),
    ]


_OPERAND = [_POINTER, _INT]
_FOUR, _THREE = _OPERAND * 4, [_POINTER] * 3
_ATTENTION = [ctypes.POINTER(NativeAttention), *_OPERAND, *_OPERAND, *_OPERAND]
_SIGNATURES: dict[str, list] = {
    "av": [_INT, *_OPERAND, *_OPERAND, _POINTER],
    "qk": [_INT, *_OPERAND, *_OPERAND, _POINTER],
    "sc": [_INT, *_OPERAND, *_OPERAND, _POINTER],
    "spanned_av": [_INT, _INT, _POINTER, _POINTER, *_OPERAND, *_OPERAND, _POINTER],
    "spanned_sc": [_INT, _INT, _POINTER, _POINTER, *_OPERAND, *_OPERAND, _POINTER],
    "attention": [*_ATTENTION, _POINTER, _POINTER],
    "attention_backward": [*_ATTENTION, _POINTER, *_FOUR, *_THREE],
}


def declare(library: ctypes.CDLL) -> None:
    """Give every entry point its argument types; AttributeError when one is missing."""
    for name, arguments in _SIGNATURES.items():
        for storage in STORAGE.values():
            function = getattr(library, f"attnlab_{name}_{storage}")
            function.argtypes = [ctypes.POINTER(NativeProblem), *arguments]
            function.restype = None
    library.attnlab_vector_bytes.restype = ctypes.c_int
