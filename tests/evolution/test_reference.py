"""The Evolution formula against nn.Conv2d, and its errors."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from attnlab._errors import InputError
from attnlab.evolution import evolve


@settings(max_examples=40, deadline=None)
@given(
    size=st.tuples(st.integers(5, 9), st.integers(5, 9)),
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 3)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    padding=st.tuples(st.integers(1, 3), st.integers(1, 2)),
    groups=st.sampled_from([1, 2, 4]),
    seed=st.integers(0, 2**16),
)
def test_convolution_is_an_evolution(size, kernel, stride, dilation, padding, groups, seed):
    torch.manual_seed(seed)
    x = torch.randn(2, 4, *size, dtype=torch.float64)
    weight = torch.randn(8, 4 // groups, *kernel, dtype=torch.float64)
    expected = F.conv2d(x, weight, None, stride, padding, dilation, groups)
    everywhere = weight.permute(2, 3, 1, 0).expand(*expected.shape[2:], -1, -1, -1, -1)
    got = evolve(x, everywhere, groups=groups, stride=stride, dilation=dilation, padding=padding)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-10)


def test_the_literal_sum():
    """Six nested loops over the printed formula, on a kernel that varies over everything."""
    torch.manual_seed(0)
    height, width, size, groups, inputs, outputs = 4, 3, 3, 2, 4, 6
    x = torch.randn(1, inputs, height, width, dtype=torch.float64)
    per_group = inputs // groups
    kernel = torch.randn(height, width, size, size, per_group, outputs, dtype=torch.float64)
    expected = torch.zeros(1, outputs, height, width, dtype=torch.float64)
    for i in range(height):
        for j in range(width):
            for m in range(outputs):
                for u in range(size):
                    for v in range(size):
                        row, column = i + u - 1, j + v - 1
                        if 0 <= row < height and 0 <= column < width:
                            first = (m * groups // outputs) * per_group
                            for n in range(per_group):
                                expected[0, m, i, j] += (
                                    x[0, first + n, row, column] * kernel[i, j, u, v, n, m]
                                )
    torch.testing.assert_close(evolve(x, kernel, groups=groups, padding=1), expected)


def test_one_kernel_per_input():
    torch.manual_seed(0)
    x = torch.randn(3, 2, 5, 5, dtype=torch.float64)
    kernel = torch.randn(3, 5, 5, 3, 3, 2, 4, dtype=torch.float64)
    together = evolve(x, kernel, padding=1)
    for one, weight, out in zip(x, kernel, together, strict=True):
        torch.testing.assert_close(evolve(one[None], weight, padding=1)[0], out)


@pytest.mark.parametrize(
    ("x", "kernel", "options", "message"),
    [
        ((4, 5, 5), (5, 5, 3, 3, 4, 4), {}, "Expected x of shape (B, C, H, W) but got (4, 5, 5)."),
        (
            (1, 4, 5, 5),
            (3, 3, 4, 4),
            {},
            "Expected a kernel W[i,j,u,v,n,m] with 6 axes, or 7 with a leading batch axis, but got "
            "shape (3, 3, 4, 4).",
        ),
        (
            (1, 4, 5, 5),
            (5, 5, 3, 3, 4, 4),
            {},
            "Expected a kernel of shape (3, 3, 3, 3, 4, 4), with or without a leading batch axis "
            "of 1, but got (1, 5, 5, 3, 3, 4, 4).",
        ),
        (
            (1, 4, 5, 5),
            (5, 5, 3, 3, 4, 4),
            {"groups": 3},
            "Expected groups to divide the 4 input and 4 output channels but got groups=3.",
        ),
        (
            (1, 4, 2, 5),
            (1, 1, 3, 3, 4, 4),
            {},
            "Expected a map at least as large as the window but got 2 × 5 with kernel_size (3, 3), "
            "dilation (1, 1) and padding (0, 0). Enlarge the map or the padding.",
        ),
    ],
)
def test_errors(x, kernel, options, message):
    with pytest.raises(InputError) as caught:
        evolve(torch.zeros(x), torch.zeros(kernel), **options)
    assert str(caught.value) == message
