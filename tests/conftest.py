"""Settings that must be made before torch is imported."""

from __future__ import annotations

import os

# Some CPUs announce AMX but end bfloat16 layers with an illegal instruction.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
