"""The C interface of the native kernels: mirrors `src/geometry.h` and `src/kernels.cpp`."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch

STORAGE = {torch.float32: "float32", torch.float64: "float64", torch.bfloat16: "bfloat16"}
"""What the kernels can read and write; bfloat16 computes in float32."""

_POINTER, _INT, _REAL = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double


class Problem(ctypes.Structure):
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
            "threads",
        )
    ]


def problem(
    batch: int, groups: int, size: Sequence[int], out_size: Sequence[int], window: list[int]
) -> Problem:
    """The problem for one call, on as many threads as torch uses."""
    return Problem(batch, groups, *size, *out_size, *window, torch.get_num_threads())


class Attention(ctypes.Structure):
    """What attention adds: depths, scale, border, and the position terms (addresses or None)."""

    _fields_ = [
        ("depth", _INT),
        ("value_depth", _INT),
        ("scale", _REAL),
        ("mask", _INT),
        ("bias", _POINTER),
        ("row", _POINTER),
        ("column", _POINTER),
    ]


_OPERAND = [_POINTER, _INT]
_FOUR, _THREE = _OPERAND * 4, [_POINTER] * 3
_ATTENTION = [ctypes.POINTER(Attention), *_OPERAND, *_OPERAND, *_OPERAND]
_SIGNATURES: dict[str, list[Any]] = {
    "av": [_INT, *_OPERAND, *_OPERAND, _POINTER],
    "qk": [_INT, *_OPERAND, *_OPERAND, _POINTER],
    "sc": [_INT, *_OPERAND, *_OPERAND, _POINTER],
    "attention": [*_ATTENTION, _POINTER, _POINTER],
    "attention_backward": [*_ATTENTION, _POINTER, *_FOUR, *_THREE],
}


def declare(library: ctypes.CDLL) -> None:
    """Give every entry point its argument types; AttributeError when one is missing."""
    for name, arguments in _SIGNATURES.items():
        for storage in STORAGE.values():
            function = getattr(library, f"attnlab_{name}_{storage}")
            function.argtypes = [ctypes.POINTER(Problem), *arguments]
            function.restype = None
    library.attnlab_vector_bytes.restype = ctypes.c_int
