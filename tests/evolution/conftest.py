"""Run a test on the native kernels and in pure torch."""

from __future__ import annotations

import pytest

from attnlab.evolution import native_status, use_native


@pytest.fixture(params=["native", "torch"])
def backend(request):
    """Either path of the primitives, by name."""
    if request.param == "native" and not native_status().available:
        pytest.skip(f"no native kernels: {native_status().reason}")
    with use_native(request.param == "native"):
        yield request.param
