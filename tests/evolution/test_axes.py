"""Sequences and videos: the primitives against one-hot convolutions, attention against torch's."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.evolution.effort import examples
from torch.nn import functional as F

from attnlab._errors import InputError, OptionError
from attnlab.evolution import (
    LocalAttention1d,
    LocalAttention2d,
    LocalAttention3d,
    Window,
    as_evolution,
    av,
    describe_operator,
    evolve,
    local_attention,
    qk,
    sc,
)

CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


def unfolded(x, groups, window):
    """(B, G, C/G, taps, *out): a convolution with one kernel per tap that is one there."""
    kernels = torch.eye(window.taps, dtype=x.dtype).view(window.taps, 1, *window.kernel_size)
    _, stride, dilation, padding = window
    alone = x.flatten(0, 1).unsqueeze(1)
    columns = CONVOLUTIONS[window.axes](alone, kernels, None, stride, padding, dilation)
    return columns.unflatten(0, (x.shape[0], groups, -1))


def by_sdpa(query, key, value, heads, window, bias, relative):
    """torch's attention over all pixels, everything outside the window masked; depth 2 per axis."""
    size, out = key.shape[2:], query.shape[2:]
    mask = torch.full((1, heads, out.numel(), size.numel()), float("-inf"), dtype=query.dtype)
    depth = query.shape[1] // heads

    def tokens(t):
        return t.flatten(2).unflatten(1, (heads, -1)).transpose(2, 3)

    places = {place: n for n, place in enumerate(itertools.product(*map(range, size)))}
    taps = list(itertools.product(*map(range, window.kernel_size)))
    for i, at in enumerate(itertools.product(*map(range, out))):
        for k, tap in enumerate(taps):
            place = tuple(
                s * a + d * u - p for a, u, s, d, p in zip(at, tap, *window[1:], strict=True)
            )
            if place in places:
                vector = torch.cat([r[:, :, u] for r, u in zip(relative, tap, strict=True)], 1)
                score = (tokens(query)[:, :, i] * vector).sum(2) * depth**-0.5
                mask[:, :, i, places[place]] = score + bias[:, k]
    got = F.scaled_dot_product_attention(tokens(query), tokens(key), tokens(value), mask)
    return got.transpose(2, 3).flatten(1, 2).unflatten(2, out)


@st.composite
def problems(draw, centred):
    """A window of one or three axes, and a size that it fits."""
    axes = draw(st.sampled_from([1, 3]))

    def numbers(strategy):
        return tuple(draw(strategy) for _ in range(axes))

    small = 2 if axes == 3 else 3
    stride, dilation = numbers(st.integers(1, small)), numbers(st.integers(1, small))
    if centred:
        window = Window.centred(numbers(st.sampled_from([1, 3])), stride, dilation)
        return window, numbers(st.integers(1, 4 if axes == 3 else 19))
    kernel = numbers(st.integers(1, small + 1))
    window = Window.of(kernel, stride, dilation, numbers(st.integers(0, small)))
    least = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    return window, tuple(n + draw(st.integers(0, 3 if axes == 3 else 17)) for n in least)


@pytest.mark.usefixtures("backend")
@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    problem=problems(centred=False), channels=st.sampled_from([1, 3, 8]), seed=st.integers(0, 99)
)
def test_primitives(problem, channels, seed):
    (window, size), groups = problem, 2
    torch.manual_seed(seed)
    out = window.output_size(*size)
    x = torch.randn(2, groups * channels, *size, dtype=torch.float64, requires_grad=True)
    y = torch.randn(2, groups * channels, *out, dtype=torch.float64)
    maps = torch.randn(2, groups, window.taps, *out, dtype=torch.float64)
    columns = unfolded(x, groups, window)
    expected = (maps.unsqueeze(2) * columns).sum(3).flatten(1, 2)
    close = {"rtol": 0, "atol": 1e-10}
    torch.testing.assert_close(av(maps, x, window), expected, **close)
    products = (y.unflatten(1, (groups, -1)).unsqueeze(3) * columns).sum(2)
    torch.testing.assert_close(qk(y, x, groups, window), products, **close)
    (adjoint,) = torch.autograd.grad(expected, x, y)
    torch.testing.assert_close(sc(maps, y, size, window), adjoint, **close)


@pytest.mark.usefixtures("backend")
@settings(
    max_examples=examples(20),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(problem=problems(centred=True), seed=st.integers(0, 99))
def test_attention(problem, seed):
    (window, size), heads = problem, 2
    torch.manual_seed(seed)

    def leaf(*shape):
        return torch.randn(*shape, dtype=torch.float64, requires_grad=True)

    depth = 2 * window.axes
    query = leaf(1, heads * depth, *window.output_size(*size))
    key, value = leaf(1, heads * depth, *size), leaf(1, heads * 3, *size)
    bias, relative = leaf(heads, window.taps), [leaf(heads, 2, n) for n in window.kernel_size]
    got = local_attention(query, key, value, heads, window, bias=bias, relative=relative)
    expected = by_sdpa(query, key, value, heads, window, bias, relative)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-10)
    weight, inputs = torch.randn_like(got), [query, key, value, bias, *relative]
    for ours, theirs in zip(
        torch.autograd.grad((got * weight).sum(), inputs),
        torch.autograd.grad((expected * weight).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_videos_in_other_types(dtype):
    """Frames are added up in float32, whatever the type of the output."""
    torch.manual_seed(0)
    window = Window.centred((5, 3, 3))
    x, maps = torch.randn(1, 4, 6, 5, 7).to(dtype), torch.randn(1, 2, 45, 6, 5, 7).to(dtype)
    columns = unfolded(x.double(), 2, window)
    expected = (maps.double().unsqueeze(2) * columns).sum(3).flatten(1, 2)
    error = (av(maps, x, window).double() - expected).abs().max() / expected.abs().max()
    assert error < {torch.float32: 1e-6, torch.bfloat16: 3e-3}[dtype]


LAYERS = {
    "sequence": (lambda: LocalAttention1d(4, 6, 5, 2, "relative", bias=True), (11,)),
    "strided sequence": (lambda: LocalAttention1d(4, 6, 3, 3, stride=2, dilation=2), (9,)),
    "absolute sequence": (lambda: LocalAttention1d(5, 6, 3, 2, "absolute", projection=True), (7,)),
    "video": (lambda: LocalAttention3d(4, 6, 3, 2, "relative", projection=True), (3, 4, 5)),
    "strided video": (lambda: LocalAttention3d(5, 4, (1, 3, 3), 2, stride=(1, 2, 2)), (2, 5, 4)),
    "absolute video": (lambda: LocalAttention3d(5, 4, (3, 1, 3), 2, "absolute"), (3, 2, 4)),
}


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_evolutions(name):
    """Against the formula with its kernel written out."""
    torch.manual_seed(0)
    build, size = LAYERS[name]
    layer = build().double()
    x = torch.randn(2, layer.in_channels, *size, dtype=torch.float64)
    out = layer(x)
    torch.testing.assert_close(out, as_evolution(layer)(x), rtol=0, atol=1e-10)
    assert out.shape[2:] == layer.window.output_size(*size)
    window = "×".join(map(str, layer.window.kernel_size))
    assert describe_operator(layer).aggregation == f"{window} pixels, {layer.in_channels} channels"


def test_an_image_of_one_row_is_a_sequence():
    """And a video of one frame is an image: the same layer, whatever it is called."""
    torch.manual_seed(0)
    sequence, image = LocalAttention1d(4, 4, 5, 2), LocalAttention2d(4, 4, (1, 5), 2)
    video = LocalAttention3d(4, 4, (1, 1, 5), 2)
    weight = sequence.query_key_value.weight.detach()
    for layer in (image, video):
        own = layer.query_key_value.weight
        own.data = weight.view(own.shape)
    x = torch.randn(2, 4, 9)
    expected = sequence(x)
    torch.testing.assert_close(image(x[:, :, None])[:, :, 0], expected)
    torch.testing.assert_close(video(x[:, :, None, None])[:, :, 0, 0], expected)


@pytest.mark.parametrize("axes", [1, 3])
def test_convolutions_are_evolutions(axes):
    torch.manual_seed(0)
    size, kernel = (5, 4, 6)[:axes], (2, 3, 1)[:axes]
    x, weight = torch.randn(2, 4, *size), torch.randn(6, 2, *kernel)
    x, weight = x.double(), weight.double()
    expected = CONVOLUTIONS[axes](x, weight, None, 2, 1, 1, 2)
    everywhere = weight.movedim((0, 1), (-1, -2)).expand(*expected.shape[2:], *[-1] * (axes + 2))
    got = evolve(x, everywhere, groups=2, stride=2, padding=1)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: Window.of((3, 3, 3, 3)),
            OptionError,
            "Expected a window of 1, 2 or 3 axes but got 4.",
        ),
        (
            lambda: Window.of((3, 3), stride=(1, 1, 1)),
            OptionError,
            "Expected stride to be one number or 2 (one per axis of the window) but got (1, 1, 1).",
        ),
        (
            lambda: av(torch.zeros(1, 1, 3, 4), torch.zeros(1, 2, 4, 4), Window.centred((3,))),
            InputError,
            "Expected x to have 3 axes but got shape (1, 2, 4, 4).",
        ),
        (
            lambda: av(torch.zeros(1, 1, 3, 5), torch.zeros(1, 2, 4), Window.centred((3,))),
            InputError,
            "Expected maps of shape (B, G, K, L_out) = (1, 1, 3, 4) but got (1, 1, 3, 5).",
        ),
        (
            lambda: local_attention(*torch.zeros(3, 1, 4, 2, 2, 2), 1, Window.centred(3)),
            InputError,
            "Expected query of shape (B, C, H, W) but got (1, 4, 2, 2, 2).",
        ),
        (
            lambda: local_attention(
                *torch.zeros(3, 1, 4, 2, 2, 2),
                1,
                Window.centred(3, axes=3),
                relative=[torch.zeros(1, 1, 3)] * 3,
            ),
            InputError,
            "Expected a multiple of 3 channels per head for the relative encoding (a third each "
            "for frames, rows and columns) but got 4.",
        ),
        (
            lambda: local_attention(
                *torch.zeros(3, 1, 4, 9),
                1,
                Window.centred((3,)),
                relative=[torch.zeros(1, 2, 3)] * 2,
            ),
            InputError,
            "Expected one relative embedding per axis (column) but got 2.",
        ),
        (
            lambda: LocalAttention3d(4, 4, (3, 3)),
            OptionError,
            "Expected kernel_size to be one number or 3 but got (3, 3).",
        ),
        (
            lambda: LocalAttention3d(4, 8, 3, 2, "relative"),
            OptionError,
            "Expected a multiple of 3 channels per head for the relative encoding but got 4 (8 "
            "channels, 2 heads).",
        ),
        (
            lambda: LocalAttention1d(4, 4, heads=2)(torch.zeros(1, 4, 5, 5)),
            InputError,
            "LocalAttention1d expected x of shape (B, 4, L) but got (1, 4, 5, 5).",
        ),
        (
            lambda: evolve(torch.zeros(1, 2, 3), torch.zeros(3, 1, 2)),
            InputError,
            "Expected a kernel W[i,u,n,m] with 4 axes, or 5 with a leading batch axis, but got "
            "shape (3, 1, 2).",
        ),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("window", "centred"),
    [
        (Window.of(3, padding=1), True),
        (Window.of(3, 2, 2, 2), True),
        (Window.of((1, 5), padding=(0, 2)), True),
        (Window.of(3), False),
        (Window.of(3, dilation=2, padding=1), False),
        (Window.of(4, padding=2), False),  # an even one has no middle
        (Window.of((3, 3), padding=(1, 0)), False),
        (Window.of((3, 4), padding=(1, 2)), False),
        (Window.of(3, padding=2), False),
    ],
)
def test_windows_around_the_pixel_that_they_are_for(window, centred):
    assert window.is_centred is centred
    assert Window.centred(window.kernel_size[0] | 1, 2, 3).is_centred
    assert Window.from_flat(window.flat()) == window
