"""Local attention against torch's own attention with an explicit neighbourhood mask."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.evolution.effort import examples
from torch.nn import functional as F

from attnlab._errors import InputError, UnknownNameError
from attnlab.evolution import Window, local_attention
from attnlab.evolution.attention import packed_local_attention


def neighbourhood(size, window):
    """(queries, keys) -> the tap of the window that joins them, or -1."""
    (height, width), (out_height, out_width) = size, window.output_size(*size)
    taps = torch.full((out_height * out_width, height * width), -1)
    for i in range(out_height):
        for j in range(out_width):
            for u in range(window.kernel_size[0]):
                for v in range(window.kernel_size[1]):
                    row = window.stride[0] * i + window.dilation[0] * u - window.padding[0]
                    column = window.stride[1] * j + window.dilation[1] * v - window.padding[1]
                    if 0 <= row < height and 0 <= column < width:
                        taps[i * out_width + j, row * width + column] = (
                            u * window.kernel_size[1] + v
                        )
    return taps


def by_sdpa(query, key, value, heads, window, bias=None, relative=None):
    """F.scaled_dot_product_attention over all pixels, with everything outside the window masked."""
    taps = neighbourhood(key.shape[2:], window)

    def tokens(t):
        return t.flatten(2).unflatten(1, (heads, -1)).transpose(2, 3)

    mask = torch.zeros(1, heads, *taps.shape, dtype=query.dtype)
    if bias is not None:
        mask = mask + bias[:, taps.clamp(min=0)]
    if relative is not None:
        row, column = relative
        u, v = taps.clamp(min=0) // window.kernel_size[1], taps.clamp(min=0) % window.kernel_size[1]
        depth = query.shape[1] // heads
        vectors = torch.cat((row[:, :, u], column[:, :, v]), dim=1)
        mask = mask + torch.einsum("bpnd,pdnk->bpnk", tokens(query), vectors) * depth**-0.5
    mask = mask.masked_fill(taps < 0, float("-inf"))
    out = F.scaled_dot_product_attention(tokens(query), tokens(key), tokens(value), mask)
    return out.transpose(2, 3).flatten(1, 2).unflatten(2, query.shape[2:])


def leaf(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


@pytest.mark.usefixtures("backend")
@settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    size=st.tuples(st.integers(1, 11), st.integers(1, 19)),
    kernel=st.tuples(st.sampled_from([1, 3, 5, 7]), st.sampled_from([1, 3, 5])),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 3)),
    heads=st.integers(1, 3),
    depth=st.sampled_from([1, 2, 4, 5]),
    value_depth=st.sampled_from([1, 3, 4]),
    position=st.sampled_from(["none", "bias", "relative"]),
    seed=st.integers(0, 2**16),
)
def test_equals_masked_attention(
    size, kernel, stride, dilation, heads, depth, value_depth, position, seed
):
    torch.manual_seed(seed)
    window = Window.centred(kernel, stride, dilation)
    if position == "relative":
        depth = 2 * depth
    query = leaf(2, heads * depth, *window.output_size(*size))
    key, value = leaf(2, heads * depth, *size), leaf(2, heads * value_depth, *size)
    options, extra = {}, []
    if position == "bias":
        options["bias"] = leaf(heads, window.taps)
        extra = [options["bias"]]
    if position == "relative":
        extra = [leaf(heads, depth // 2, n) for n in window.kernel_size]
        options["relative"] = tuple(extra)
    got = local_attention(query, key, value, heads, window, **options)
    expected = by_sdpa(query, key, value, heads, window, **options)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-10)
    weight = torch.randn_like(got)
    inputs = [query, key, value, *extra]
    for ours, theirs in zip(
        torch.autograd.grad((got * weight).sum(), inputs),
        torch.autograd.grad((expected * weight).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)


@pytest.mark.usefixtures("backend")
def test_zero_boundary_is_unfold():
    """Zero keys inside the softmax, as a plain unfold does; differs from the mask at borders."""
    torch.manual_seed(0)
    window, heads = Window.centred(3), 2
    query, key, value = (torch.randn(1, 8, 5, 6, dtype=torch.float64) for _ in range(3))
    keys, values = (F.unfold(t, 3, padding=1).view(1, heads, 4, 9, 5, 6) for t in (key, value))
    scores = (query.view(1, heads, 4, 1, 5, 6) * keys).sum(2) / 2
    expected = (scores.softmax(2).unsqueeze(2) * values).sum(3).flatten(1, 2)
    got = local_attention(query, key, value, heads, window, boundary="zero")
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)
    masked = local_attention(query, key, value, heads, window)
    inner = (..., slice(1, -1), slice(1, -1))
    torch.testing.assert_close(got[inner], masked[inner], rtol=0, atol=1e-12)
    assert (got - masked).abs().max() > 0.05


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("boundary", ["mask", "zero"])
def test_derivatives_of_both_orders(boundary):
    torch.manual_seed(0)
    window, heads = Window.centred(3, stride=2), 2
    query, key, value = leaf(1, 4, 2, 3), leaf(1, 4, 4, 5), leaf(1, 4, 4, 5)
    row, column = leaf(heads, 1, 3), leaf(heads, 1, 3)

    def attend(query, key, value, row, column):
        return local_attention(
            query, key, value, heads, window, relative=(row, column), boundary=boundary
        )

    assert torch.autograd.gradcheck(attend, (query, key, value, row, column))
    assert torch.autograd.gradgradcheck(attend, (query, key, value, row, column))


@pytest.mark.usefixtures("backend")
def test_second_derivatives_when_query_key_and_value_are_one_tensor():
    torch.manual_seed(0)
    x = leaf(1, 2, 3, 4)
    assert torch.autograd.gradgradcheck(
        lambda x: local_attention(x, 2 * x, x, 1, Window.centred(3)), (x,)
    )


@pytest.mark.usefixtures("backend")
def test_large_scores():
    """A softmax that is one at a single tap, with scores far beyond what exp can take."""
    torch.manual_seed(0)
    window = Window.centred(3)
    query = torch.full((1, 1, 6, 9), 1e4)
    key = torch.randn(1, 1, 6, 9).requires_grad_()
    value = torch.randn(1, 1, 6, 9)
    got = local_attention(query, key, value, 1, window)
    expected = by_sdpa(query.double(), key.double(), value.double(), 1, window)
    torch.testing.assert_close(got.double(), expected, rtol=1e-5, atol=1e-5)
    (gradient,) = torch.autograd.grad(got.sum(), key)
    assert gradient.isfinite().all()


@pytest.mark.parametrize(
    "window",
    [
        Window.of(3, padding=(1, 0)),
        Window.of(3, padding=(0, 1)),
        Window.of((3, 2), padding=1),
        Window.of(3, dilation=(1, 2), padding=1),
    ],
    ids=str,
)
def test_a_window_is_centred_on_every_axis(window):
    q = torch.zeros(1, 6, 6, 6)
    assert not window.is_centred
    with pytest.raises(InputError, match=r"^Expected a centred window of odd size but got "):
        local_attention(q, q, q, 2, window)
    assert Window.of((3, 5), dilation=(2, 1), padding=2).is_centred


def test_errors():
    q = torch.zeros(1, 6, 4, 4)
    with pytest.raises(UnknownNameError) as unknown:
        local_attention(q, q, q, 2, Window.centred(3), boundary="zeros")
    assert str(unknown.value) == (
        "Unknown boundary 'zeros'. Did you mean 'zero'? Expected one of: mask, zero."
    )
    with pytest.raises(InputError) as odd:
        local_attention(
            q, q, q, 2, Window.centred(3), relative=(torch.zeros(2, 1, 3), torch.zeros(2, 1, 3))
        )
    assert str(odd.value) == (
        "Expected an even number of channels per head for the relative encoding (half for rows, "
        "half for columns) but got 3."
    )
    with pytest.raises(InputError) as shape:
        local_attention(q, q, q[:, :, :2], 2, Window.centred(3))
    assert str(shape.value) == "Expected value of shape (1, 6, 4, 4) but got (1, 6, 2, 4)."


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_thirds_of_one_tensor_are_query_key_and_value(dtype):
    """The value and all gradients, of the batch that the kernels divide as well."""
    torch.manual_seed(0)
    packed = torch.randn(5, 24, 6, 7, dtype=dtype, requires_grad=True)
    bias = torch.randn(2, 9, dtype=dtype, requires_grad=True)
    window, slope = Window.centred(3), torch.randn(5, 8, 6, 7, dtype=dtype)
    apart = [third.detach().requires_grad_() for third in packed.chunk(3, 1)]
    found = packed_local_attention(packed, 2, window, bias=bias)
    wanted = local_attention(*apart, 2, window, bias=bias)
    close = {"rtol": 0, "atol": {torch.float64: 1e-12, torch.float32: 1e-5}.get(dtype, 0.1)}
    torch.testing.assert_close(found, wanted, **close)
    own = torch.autograd.grad(found, [packed, bias], slope)
    *three, of_bias = torch.autograd.grad(wanted, [*apart, bias], slope)
    torch.testing.assert_close(own, (torch.cat(three, 1), of_bias), **close)
    assert (own[0].dtype, own[1].dtype) == (dtype, dtype)
