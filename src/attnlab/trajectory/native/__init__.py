"""One native kernel: the sums of squares of a step in one pass. Built on first use, not on import.

Shares the build, the cache and the variable `ATTNLAB_NATIVE` with the operators' kernels. Whatever
fails, the eager reduction remains.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

SOURCE = Path(__file__).parent
_enabled = True


def step_sums(x: Tensor, f: Tensor, relu: bool) -> Tensor | None:
    """Σx², Σf² and Σ(relu(x + f) − x)² of each row, (rows, 3) in float64.

    Without `relu` the last is Σf². None where the kernel cannot run: no compiler, another device,
    dtype or layout. Rows must be contiguous.
    """
    kernel = _kernel() if _enabled and _takes(x) and _takes(f) else None
    if kernel is None:
        return None
    sums = torch.empty(len(x), 3, dtype=torch.float64)
    kernel(
        x.data_ptr(),
        x.stride(0),
        f.data_ptr(),
        f.stride(0),
        *x.shape,
        relu,
        torch.get_num_threads(),
        sums.data_ptr(),
    )
    return sums


@contextmanager
def use_native(enabled: bool) -> Iterator[None]:
    """Switch the kernel off (or on again) inside a block, for comparisons."""
    global _enabled
    before, _enabled = _enabled, enabled
    try:
        yield
    finally:
        _enabled = before


def _takes(rows: Tensor) -> bool:
    return rows.device.type == "cpu" and rows.dtype == torch.float32 and rows.stride(1) == 1


@cache
def _kernel() -> ctypes._NamedFuncPointer | None:
    from attnlab.evolution.native import variants
    from attnlab.evolution.native.build import BuildError, built

    if os.environ.get("ATTNLAB_NATIVE", "auto") != "auto":
        return None
    try:
        library = ctypes.CDLL(str(built(variants.host(), SOURCE)))
    except (BuildError, OSError):
        return None
    kernel = library.attnlab_step_sums
    pointer, integer = ctypes.c_void_p, ctypes.c_int64
    kernel.argtypes = [pointer, integer, pointer, integer, *[integer] * 4, pointer]
    kernel.restype = None
    return kernel
