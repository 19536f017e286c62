"""The Triton kernels in Triton's interpreter: every edge at small shapes, against plain torch in
float64, whose own tests compare it with unfold and with torch's attention."""

from __future__ import annotations

import pytest
import torch

from attnlab.evolution import (
    ChannelAttention2d,
    Involution2d,
    LocalAttention2d,
    Window,
    av,
    local_attention,
    qk,
    sc,
    use_native,
)
from attnlab.evolution._kernels import kernel_for
from attnlab.evolution._triton import launch, tuning

# Size, window: one row, one column, more taps than pixels, strides and dilations, no multiple of a
# block, one axis and three.
SHAPES = {
    "one row": ((1, 19), Window.centred((1, 3), 1, (1, 2))),
    "one column": ((18, 1), Window.centred((3, 1), 2)),
    "more taps than pixels": ((2, 2), Window.centred(5)),
    "strided": ((5, 7), Window.centred(3, (2, 3))),
    "dilated": ((5, 8), Window.centred(3, 1, 2)),
    "both": ((7, 8), Window.centred(3, 2, 3)),
    "sequence": ((21,), Window.centred((5,), 2)),
    "video": ((2, 3, 5), Window.centred((3, 1, 3), (1, 1, 2))),
}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks of 2 channels and 16 pixels, so that every shape has several and some are not full."""
    assert kernel_for("cpu", torch.float32).kernel == "triton"
    fixed = tuning.fixed

    def small(channels, pixels, whole):
        blocks = fixed(channels, pixels, whole)
        return blocks._replace(channels=blocks.channels if whole else 2, pixels=16)

    monkeypatch.setattr(tuning, "fixed", small)
    torch.manual_seed(0)


def close(function, *inputs, tolerance=1e-5):
    """`function` and its gradients on Triton and, in float64, in plain torch."""

    def run(inputs):
        leaves = [t.detach().requires_grad_() for t in inputs]
        out = function(*leaves)
        weight = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).view_as(out)
        return [out, *torch.autograd.grad((out.double() * weight).sum(), leaves)]

    got = run(inputs)
    with use_native(False):
        expected = run([t.double() for t in inputs])
    for ours, theirs in zip(got, expected, strict=True):
        assert ours.dtype == inputs[0].dtype
        scale = theirs.abs().max().clamp(min=1)
        assert ((ours.double() - theirs).abs().max() / scale) < tolerance


@pytest.mark.parametrize("name", SHAPES)
def test_primitives(name):
    size, window = SHAPES[name]
    out, groups = window.output_size(*size), 2
    x, y = torch.randn(1, 6, *size), torch.randn(1, 6, *out)
    maps = torch.randn(1, groups, window.taps, *out)
    with torch.no_grad():
        for function, inputs in (
            (lambda m, x: av(m, x, window), (maps, x)),
            (lambda q, x: qk(q, x, groups, window), (y, x)),
            (lambda m, y: sc(m, y, size, window), (maps, y)),
        ):
            got = function(*inputs)
            with use_native(False):
                expected = function(*(t.double() for t in inputs))
            torch.testing.assert_close(got.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("boundary", ["mask", "zero"])
@pytest.mark.parametrize("name", ["strided", "video"])
def test_attention_with_both_position_terms(name, boundary):
    size, window = SHAPES[name]
    heads, depth = 2, 2 * window.axes
    query, key = (
        torch.randn(1, 2 * depth, *window.output_size(*size)),
        torch.randn(1, 2 * depth, *size),
    )
    value, bias = torch.randn(1, 6, *size), torch.randn(heads, window.taps)
    relative = [torch.randn(heads, 2, length) for length in window.kernel_size]
    close(
        lambda q, k, v, b, *r: local_attention(
            q, k, v, heads, window, bias=b, relative=r, boundary=boundary
        ),
        *(query, key, value, bias, *relative),
    )


@pytest.mark.parametrize("name", ["one row", "more taps than pixels", "dilated", "sequence"])
def test_attention_without(name):
    size, window = SHAPES[name]
    query = torch.randn(1, 3, *window.output_size(*size))
    key, value = torch.randn(1, 3, *size), torch.randn(1, 5, *size)
    close(lambda q, k, v: local_attention(q, k, v, 1, window), query, key, value)


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float64, 1e-12), (torch.float16, 5e-3), (torch.bfloat16, 3e-2)],
)
def test_other_types(dtype, tolerance):
    window = Window.centred((1, 3))
    x, y = torch.randn(2, 1, 4, 4, 5).to(dtype)
    maps = torch.randn(1, 2, 3, 4, 5).to(dtype)
    close(lambda m, x: av(m, x, window), maps, x, tolerance=tolerance)
    close(lambda q, k: local_attention(q, k, k, 2, window), x, y, tolerance=tolerance)


def test_heads_too_deep_for_one_program(monkeypatch):
    """They are made of the primitives; the limit is lowered so that a small head is beyond it."""
    monkeypatch.setattr(launch, "DEEPEST", 3)
    window, x, bias = Window.centred((1, 3)), torch.randn(1, 8, 4, 5), torch.randn(2, 3)

    def fused(*_arguments):
        raise AssertionError("the fused kernel")

    monkeypatch.setattr(launch, "_by_pixels", fused)
    close(lambda x, b: local_attention(x, 2 * x, x, 2, window, bias=b), x, bias)


def test_views_need_no_copy():
    """Thirds of a packed tensor, and other layouts."""
    window, packed = Window.centred((1, 3)), torch.randn(2, 12, 4, 5)
    parts = packed.chunk(3, dim=1)
    expected = local_attention(*(t.contiguous() for t in parts), 2, window)
    torch.testing.assert_close(local_attention(*parts, 2, window), expected)
    last = [t.contiguous(memory_format=torch.channels_last) for t in parts]
    torch.testing.assert_close(local_attention(*last, 2, window), expected)


@pytest.mark.parametrize(
    "layer",
    [
        lambda: Involution2d(8, 3, 2, 2, stride=2),
        lambda: LocalAttention2d(4, 4, 3, 2, "relative", projection=True),
        lambda: ChannelAttention2d(4, 4, 3, stride=2),
    ],
    ids=["involution", "attention", "channel attention"],
)
def test_layers(layer):
    layer = layer().eval()
    x = torch.randn(1, layer.in_channels, 5, 4)
    with use_native(False):
        expected = layer(x)
    torch.testing.assert_close(layer(x), expected, rtol=1e-4, atol=1e-5)


def test_large_scores_and_an_empty_batch():
    window = Window.centred(3)
    query, key = torch.full((1, 1, 3, 4), 1e4), torch.randn(1, 1, 3, 4)
    close(
        lambda k: local_attention(query.to(k.dtype), k, k.detach().flip(2), 1, window),
        key,
        tolerance=1e-3,
    )
    assert local_attention(query[:0], key[:0], key[:0], 1, window).shape == (0, 1, 3, 4)


def test_timed_blocks_give_the_same(monkeypatch):
    """What happens on a GPU, with every candidate run and the slowest pretended fastest."""
    window, x, maps = Window.centred((1, 3)), torch.randn(1, 16, 6, 6), torch.randn(1, 1, 3, 6, 6)
    expected = av(maps, x, window)
    runs = []

    def slower_and_slower(call, quantiles):
        call()
        runs.append(call)
        return [-float(len(runs))] * len(quantiles)

    monkeypatch.setenv("TRITON_INTERPRET", "0")
    monkeypatch.setattr(tuning, "tuned", tuning.tuned.__wrapped__)
    autotune = tuning.triton.autotune

    def with_timer(configs, key):
        return autotune(configs, key, do_bench=slower_and_slower)

    monkeypatch.setattr(tuning.triton, "autotune", with_timer)
    got = launch.TRITON.av(maps, x, window.flat())
    assert len(runs) == len(tuning.candidates(16, 64, False)) > 2
    torch.testing.assert_close(got, expected)


def test_deterministic_torch_is_not_timed(monkeypatch):
    window, x, maps = Window.centred(3), torch.randn(1, 2, 3, 4), torch.randn(1, 1, 9, 3, 4)
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    monkeypatch.setattr(tuning, "tuned", None)
    got = launch.TRITON.av(maps, x, window.flat())
    with use_native(False):
        torch.testing.assert_close(got, av(maps, x, window))
