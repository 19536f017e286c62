"""Against torch's own convolution of every map by itself."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from attnlab.gates import ema
from attnlab.gates.ema import PackedConv2d


@pytest.mark.parametrize(
    ("channels", "number", "together"),
    [(1, 32, 16), (2, 32, 8), (3, 30, 5), (8, 32, 2), (8, 31, 1), (17, 32, 1)],
)
def test_values_and_gradients(channels: int, number: int, together: int) -> None:
    torch.manual_seed(0)
    layer = PackedConv2d(channels, 3, number).double()
    assert layer.together == together
    maps = torch.randn(2 * number, channels, 5, 4, dtype=torch.float64, requires_grad=True)
    inputs = (maps, layer.weight, layer.bias)
    expected = F.conv2d(*inputs, padding=1)
    found = layer(maps)
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13)
    slope = torch.randn_like(found)
    for ours, theirs in zip(
        torch.autograd.grad(found, inputs, slope),
        torch.autograd.grad(expected, inputs, slope),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_maps_come_together_on_a_cpu_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere, and for what counts or records operations, it is the plain convolution."""
    layer, given = PackedConv2d(2, 3, 32), []
    noted = F.conv2d

    def conv2d(maps: torch.Tensor, *others: object, **options: object) -> torch.Tensor:
        given.append(tuple(maps.shape))
        return noted(maps, *others, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(ema.F, "conv2d", conv2d)
    layer(torch.randn(64, 2, 5, 5))
    assert given == [(8, 16, 5, 5)]
    with FlopCounterMode(display=False) as counter:
        layer(torch.randn(64, 2, 5, 5))
    assert counter.get_total_flops() == 2 * 64 * 25 * 2 * 2 * 9
    layer.to("meta")(torch.randn(64, 2, 5, 5, device="meta"))
    assert (8, 16, 5, 5) not in given[1:]
