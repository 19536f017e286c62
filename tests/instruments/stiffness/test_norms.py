"""Step norms, eager and native, against float64 formulas in every layout."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from attnlab.instruments.stiffness import native
from attnlab.instruments.stiffness.norms import norm, step_norms

SHAPES = [(5, 6, 7, 3), (2, 16, 32, 32), (4, 17, 40), (3, 1000), (1, 3, 5, 5), (7, 1, 1, 1)]


def expected(x, f, activation):
    x, f = x.double(), f.double()
    change = f if activation is None else activation(x + f) - x
    return [tensor.flatten(1).norm(dim=1) for tensor in (x, f, change)]


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("activation", [None, torch.relu, F.silu])
@pytest.mark.parametrize("shape", SHAPES)
def test_against_float64(shape, activation, enabled):
    torch.manual_seed(0)
    x, f = torch.randn(shape), 3 * torch.randn(shape)
    with native.use_native(enabled):
        found = step_norms(x, f, shape[0], activation)
    for got, want in zip(found, expected(x, f, activation), strict=True):
        torch.testing.assert_close(got.double(), want, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("enabled", [True, False])
def test_layouts(enabled):
    """Channels last, mixed, strided, expanded: the same norms."""
    torch.manual_seed(0)
    x, f = torch.randn(4, 6, 8, 8), torch.randn(4, 6, 8, 8)
    last = torch.channels_last
    wide = torch.randn(4, 12, 8, 8)
    one = torch.randn(4, 6, 1, 1)
    cases = [
        (x.to(memory_format=last), f.to(memory_format=last)),
        (x.to(memory_format=last), f),
        (wide[:, ::2], f),
        (wide[:, :6], wide[:, 6:]),
        (one.expand(-1, -1, 8, 8), f),
        (x.permute(0, 2, 3, 1), f.permute(0, 2, 3, 1)),
    ]
    for a, b in cases:
        with native.use_native(enabled):
            found = step_norms(a, b, 4, torch.relu)
        for got, want in zip(found, expected(a, b, torch.relu), strict=True):
            torch.testing.assert_close(got.double(), want, rtol=2e-6, atol=0)


def test_windows_folded_into_the_batch():
    x = torch.randn(6, 4, 9)
    torch.testing.assert_close(norm(x, 2), x.reshape(2, -1).norm(dim=1))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_dtypes(dtype):
    x, f = torch.randn(3, 300).to(dtype), torch.randn(3, 300).to(dtype)
    for got, want in zip(step_norms(x, f, 3, torch.relu), expected(x, f, torch.relu), strict=True):
        assert got.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=0)


def test_half_precision_does_not_overflow():
    x = torch.full((2, 5000), 200.0, dtype=torch.float16)
    torch.testing.assert_close(norm(x, 2), torch.full((2,), 200 * 5000**0.5))


def test_the_kernel_was_really_used_where_there_is_a_compiler():
    import shutil

    if not any(shutil.which(name) for name in ("c++", "g++", "clang++")):
        pytest.skip("no C++ compiler on the path")
    assert native.step_sums(torch.ones(2, 40), torch.ones(2, 40), True) is not None
    assert native.step_sums(torch.ones(2, 40).double(), torch.ones(2, 40).double(), True) is None
