"""The operators' native kernels."""

from __future__ import annotations

from pathlib import Path

from attnlab import _native_variants as variants
from attnlab._native_kernels import Kernels
from attnlab._native_kernels import NativeStatus as NativeStatus
from attnlab.evolution.native import abi

SOURCE = Path(__file__).parent / "src"
PREBUILT = Path(__file__).parent / "lib"
KERNELS = Kernels(SOURCE, PREBUILT, abi.declare)
NARROW = Kernels(SOURCE, PREBUILT, abi.declare, lambda: variants.narrower(variants.this_machine()))
"""The kernels for rows of less than a vector; built when the first such map comes along."""

library, narrow_library = KERNELS.library, NARROW.library
native_status = KERNELS.status
