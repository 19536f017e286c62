"""The instruction sets that the kernels are built for, and the choice among them."""

from __future__ import annotations

import platform
from typing import NamedTuple


class Variant(NamedTuple):
    """One build of the source."""

    name: str
    flags: tuple[str, ...]


_AVX512_FLAGS = ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma")
AVX512 = Variant("avx512", (*_AVX512_FLAGS, "-mprefer-vector-width=512", "-DVECTOR_BYTES=64"))
AVX512_NARROW = Variant(
    "avx512-narrow", (*_AVX512_FLAGS, "-mprefer-vector-width=256", "-DVECTOR_BYTES=32")
)
"""Half the width, with AVX-512's masks and its 32 registers: for rows that fill half a vector."""
AVX2 = Variant("avx2", ("-mavx2", "-mfma", "-DVECTOR_BYTES=32"))
BASELINE = Variant("baseline", ("-DVECTOR_BYTES=16",))
"""What every compiler of a machine targets: SSE2, NEON, ..."""


def best_variant(capability: str, machine: str) -> Variant:
    """The variant for a CPU that torch describes as `capability`.

    torch asks the processor (cpuid) and honours ATEN_CPU_CAPABILITY, so that variable also selects
    a smaller variant here.
    """
    if machine.lower() in ("x86_64", "amd64"):
        if capability.startswith("AVX512"):
            return AVX512
        if capability.startswith("AVX2"):
            return AVX2
    return BASELINE


def narrower(variant: Variant) -> Variant:
    """The variant for short rows, on a processor that `variant` is for."""
    return AVX512_NARROW if variant == AVX512 else variant


def this_machine() -> Variant:
    """The variant for this machine."""
    import torch  # a wheel is built where there is no torch

    return best_variant(torch.backends.cpu.get_cpu_capability(), platform.machine())
