"""The operators' native kernels."""

from __future__ import annotations

from pathlib import Path

from attnlab._native import Kernels
from attnlab._native import NativeStatus as NativeStatus
from attnlab.evolution.native import abi

SOURCE = Path(__file__).parent / "src"
KERNELS = Kernels(SOURCE, Path(__file__).parent / "lib", abi.declare)

library = KERNELS.library
native_status = KERNELS.status
