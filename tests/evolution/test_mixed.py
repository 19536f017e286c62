"""Convolution plus attention: against loops by hand, and as one kernel of the one formula."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from attnlab._errors import InputError, OptionError
from attnlab.evolution import (
    ConvolutionPlusAttention2d,
    EvolutionConv2d,
    Kernel,
    KernelFunction,
    SharedKernel,
    SumKernel,
    Window,
    as_evolution,
    describe_operator,
    evolve,
)


def layer(inputs: int = 4, outputs: int = 6, size: int = 3, heads: int = 2, **more: object):
    torch.manual_seed(0)
    made = ConvolutionPlusAttention2d(inputs, outputs, size, heads, **more).double()  # type: ignore[arg-type]
    with torch.no_grad():
        made.coefficients.copy_(torch.tensor([0.7, -1.3]))
    return made


def by_hand(own: ConvolutionPlusAttention2d, x: Tensor) -> Tensor:
    """Every pixel, output channel and tap in a loop; a softmax over the taps inside the image."""
    (rows, columns), (k, _) = x.shape[2:], own.window.kernel_size
    alpha, beta = own.coefficients
    width = own.out_channels
    projection = own.attention.query_key_value.weight.flatten(1)
    q, key, value = (torch.einsum("mc,bchw->bmhw", w, x) for w in projection.split(width))
    out = torch.zeros(len(x), width, rows, columns, dtype=x.dtype)
    depth = width // own.attention.heads
    for b in range(len(x)):
        for i in range(rows):
            for j in range(columns):
                taps = [
                    (u, v, i + u - k // 2, j + v - k // 2)
                    for u in range(k)
                    for v in range(k)
                    if 0 <= i + u - k // 2 < rows and 0 <= j + v - k // 2 < columns
                ]
                for u, v, r, c in taps:
                    out[b, :, i, j] += alpha * own.weight[:, :, u, v] @ x[b, :, r, c]
                for head in range(own.attention.heads):
                    part = slice(head * depth, (head + 1) * depth)
                    scores = torch.stack(
                        [q[b, part, i, j] @ key[b, part, r, c] for _, _, r, c in taps]
                    )
                    # Like the layer's own: divided by the root of the depth.
                    share = (scores / depth**0.5).softmax(0)
                    for weight, (_, _, r, c) in zip(share, taps, strict=True):
                        out[b, part, i, j] += beta * weight * value[b, part, r, c]
    return out


@pytest.mark.parametrize("size", [1, 3, 5])
def test_against_loops(size: int) -> None:
    own, x = layer(size=size), torch.randn(2, 4, 5, 4, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(own(x), by_hand(own, x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("positional", [None, "relative", "absolute"])
def test_the_sum_is_one_kernel_of_the_formula(positional: str | None) -> None:
    own, x = layer(8, 8, positional=positional), torch.randn(2, 8, 5, 7, dtype=torch.float64)
    with torch.no_grad():
        dense = own.kernel(x).dense(x)
        assert dense.shape == (2, 5, 7, 3, 3, 8, 8)
        torch.testing.assert_close(evolve(x, dense, padding=1), own(x), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(as_evolution(own)(x), own(x), rtol=1e-12, atol=1e-12)


def test_each_coefficient_alone_is_one_of_the_two() -> None:
    own, x = layer(), torch.randn(1, 4, 6, 6, dtype=torch.float64)
    with torch.no_grad():
        own.coefficients.copy_(torch.tensor([1.0, 0.0]))
        torch.testing.assert_close(own(x), nn.functional.conv2d(x, own.weight, padding=1))
        own.coefficients.copy_(torch.tensor([0.0, 1.0]))
        torch.testing.assert_close(own(x), own.attention(x))


def test_gradients() -> None:
    own, x = layer(), torch.randn(1, 4, 3, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(own, (x,))
    own(x).square().sum().backward()
    assert own.coefficients.grad is not None
    assert (own.coefficients.grad != 0).all()


def test_what_it_says_of_itself() -> None:
    said = describe_operator(layer())
    assert said.generation == "input-specific"
    assert said.space == "specific"


def test_kernels_that_do_not_fit_are_refused() -> None:
    weight = torch.zeros(2, 2, 3, 3)
    one, other = SharedKernel(weight, Window.of(3)), SharedKernel(weight, Window.of(3, padding=1))
    with pytest.raises(InputError, match=r"Expected kernels of one window .* but got 2 windows"):
        SumKernel((one, other), torch.ones(2))
    with pytest.raises(InputError, match="1 coefficients for 2 kernels"):
        SumKernel((one, one), torch.ones(1))


class NotAKernel(KernelFunction):
    scope = "image"

    def forward(self, x: Tensor, window: Window) -> Kernel:  # noqa: ARG002
        return x  # type: ignore[return-value]


@pytest.mark.parametrize("function", ["foo", nn.Conv2d(64, 64, 7), None, NotAKernel])
def test_what_is_not_a_kernel_function_is_refused(function: object) -> None:
    with pytest.raises(OptionError, match="Expected function to be a KernelFunction"):
        EvolutionConv2d(64, 64, 7, function)  # type: ignore[arg-type]


def test_a_function_that_makes_no_kernel_is_named() -> None:
    message = "Expected NotAKernel to return a kernel form, such as SampleKernel, but got Tensor"
    with pytest.raises(InputError, match=message):
        EvolutionConv2d(4, 4, 3, NotAKernel())(torch.zeros(1, 4, 5, 5))
