"""Run a test on the native kernels and in pure torch; in Triton's interpreter, on Triton's."""

from __future__ import annotations

import pytest
import torch

from attnlab.evolution import native_status, use_native
from attnlab.evolution._kernels import interpreting, kernel_for

# These run in a process of their own, which `test_triton.py` starts: the interpreter is chosen when
# triton is imported, and is not for the rest of the suite.
collect_ignore = [] if interpreting() else ["interpreted"]


@pytest.fixture(params=["triton"] if interpreting() else ["native", "torch"])
def backend(request):
    """Either path of the operators, by name."""
    if request.param == "triton":
        assert kernel_for("cpu", torch.float32).kernel == "triton"
    elif request.param == "native" and not native_status().available:
        pytest.skip(f"no native kernels: {native_status().reason}")
    with use_native(request.param != "torch"):
        yield request.param
