"""Sums over space and single axes in either memory order, against NumPy in float64; traces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from attnlab.gates import build_gate
from attnlab.gates._pooling import LARGE_MAP, over_axis, over_space, shrink, spatial_mean
from attnlab.gates._shared import FEW_PIXELS, scaled_and_shifted

ORDERS = [torch.contiguous_format, torch.channels_last]


def values(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("axis", [1, 2, 3])
@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_over_axis(order: torch.memory_format, axis: int) -> None:
    x = values(2, 3, 4, 5).contiguous(memory_format=order)
    mean, maximum = (over_axis(reduce, x, axis).numpy() for reduce in (torch.mean, torch.amax))
    np.testing.assert_allclose(mean, x.numpy().mean(axis=axis), rtol=1e-12)
    np.testing.assert_array_equal(maximum, x.numpy().max(axis=axis))


@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16], ids=str)
@pytest.mark.parametrize("shape", [(2, 3, 7), (2, 3, 4, 5), (2, 3, 4, 5, 6)], ids=str)
def test_the_mean_of_maps_of_any_rank(
    shape: tuple[int, ...], dtype: torch.dtype, gradients: bool
) -> None:
    for x in (values(*shape), values(*shape).transpose(0, -1).contiguous().transpose(0, -1)):
        given = x.to(dtype)
        with torch.set_grad_enabled(gradients):
            found = spatial_mean(given).double().numpy()
        expected = given.double().numpy().mean(axis=tuple(range(2, len(shape))))
        np.testing.assert_allclose(found, expected, atol=1e-3 if dtype == torch.float16 else 1e-12)


@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize("shape", [(2, 64, 64, 73), (2, 64, 66, 72), (2, 3, 4, 5)], ids=str)
@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_over_space(order: torch.memory_format, shape: tuple[int, ...], gradients: bool) -> None:
    assert 3 * 4 * 5 < LARGE_MAP < 64 * 64 * 73
    x = values(*shape).contiguous(memory_format=order)
    with torch.set_grad_enabled(gradients):
        mean, maximum = spatial_mean(x).numpy(), over_space(torch.amax, x).numpy()
    np.testing.assert_allclose(mean, x.numpy().mean(axis=(2, 3)), rtol=1e-9)
    np.testing.assert_array_equal(maximum, x.numpy().max(axis=(2, 3)))


@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize("window", [(1, 1), (2, 7), (3, 3), (2, 9)], ids=str)
@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_shrink(order: torch.memory_format, window: tuple[int, int], gradients: bool) -> None:
    x = values(2, 3, 4 * window[0], 4 * window[1]).contiguous(memory_format=order)
    with torch.set_grad_enabled(gradients):
        small = shrink(x, 4).numpy()
    windows = x.contiguous().numpy().reshape(2, 3, 4, window[0], 4, window[1])
    np.testing.assert_allclose(small, windows.mean(axis=(3, 5)), rtol=1e-12)


@pytest.mark.parametrize("side", [3, 17])
@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_scaled_and_shifted(order: torch.memory_format, side: int) -> None:
    assert 3 * 3 <= FEW_PIXELS < 17 * 17
    x = values(2, 3, side, side).contiguous(memory_format=order)
    before = x.clone()
    scale, shift = values(4, 3, 1, 1).split(2)
    got = scaled_and_shifted(x, scale, shift).numpy()
    np.testing.assert_allclose(got, x.numpy() * scale.numpy() + shift.numpy(), rtol=1e-12)
    torch.testing.assert_close(x, before, rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:FutureWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("name", ["cbam", "srm", "sge", "simam", "ema"])
def test_a_trace_goes_to_a_file_and_back_with_its_gradients(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    gate = build_gate(name, 8).double().eval()
    for parameter in gate.parameters():
        nn.init.normal_(parameter)
    torch.jit.trace(gate, torch.randn(2, 8, 5, 6).double()).save(str(tmp_path / "gate.pt"))
    loaded = torch.jit.load(str(tmp_path / "gate.pt"))
    branch = torch.randn(3, 8, 7, 4).double()  # another size than that of the trace
    found = []
    for each in (gate, loaded):
        given = branch.clone().requires_grad_()
        gates = each(given)
        (gates * branch).sum().backward()
        found.append((gates, given.grad))
    torch.testing.assert_close(found[1], found[0])
