"""One native kernel: the sums of squares of a step in one pass. Built on first use, not on import.

Shares the build, the cache and the variable `ATTNLAB_NATIVE` with the operators' kernels. Whatever
fails, the eager reduction remains.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch
from torch import Tensor

from attnlab._native_kernels import Kernels

SOURCE = Path(__file__).parent


def _declare(library: ctypes.CDLL) -> None:
    pointer, integer = ctypes.c_void_p, ctypes.c_int64
    library.attnlab_step_sums.argtypes = [
        pointer,
        integer,
        pointer,
        integer,
        *[integer] * 4,
        pointer,
    ]
    library.attnlab_step_sums.restype = None


KERNELS = Kernels(SOURCE, SOURCE / "lib", _declare)
use_native = KERNELS.use


def step_sums(x: Tensor, f: Tensor, relu: bool) -> Tensor | None:
    """Σx², Σf² and Σ(relu(x + f) − x)² of each row, (rows, 3) in float64.

    Without `relu` the last is Σf². None where the kernel cannot run: no compiler, another device,
    dtype or layout. Rows must be contiguous.
    """
    library = KERNELS.library() if _takes(x) and _takes(f) else None
    if library is None:
        return None
    sums = torch.empty(len(x), 3, dtype=torch.float64)
    library.attnlab_step_sums(
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


def _takes(rows: Tensor) -> bool:
    return rows.device.type == "cpu" and rows.dtype == torch.float32 and rows.stride(1) == 1
