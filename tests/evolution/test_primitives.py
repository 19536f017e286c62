"""av, qk and sc: against unfold, as adjoints, and under differentiation of both orders."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.evolution.effort import examples
from torch.nn import functional as F

from attnlab._errors import InputError
from attnlab.evolution import Window, av, qk, sc, spanned_av
from attnlab.evolution.native import composed

WINDOW = Window.centred(3)
windows = st.builds(
    Window.of,
    kernel_size=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    dilation=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.tuples(st.integers(0, 6), st.integers(0, 6)),
)


def unfolded(x, groups, window):
    """(B, G, C/G, K², H_out, W_out), with torch's own unfold."""
    size, stride, dilation, padding = window
    columns = F.unfold(x, size, dilation, padding, stride)
    return columns.unflatten(1, (groups, -1, window.taps)).unflatten(
        -1, window.output_size(*x.shape[2:])
    )


def folded(columns, size, window):
    """The adjoint of `unfolded`, with torch's own fold."""
    kernel, stride, dilation, padding = window
    return F.fold(columns.flatten(1, 3).flatten(2), size, kernel, dilation, padding, stride)


@pytest.mark.usefixtures("backend")
@settings(
    max_examples=examples(120),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    window=windows,
    size=st.tuples(st.integers(1, 14), st.integers(1, 21)),
    batch=st.integers(1, 3),
    groups=st.integers(1, 3),
    per_group=st.sampled_from([1, 2, 3, 4, 7, 16]),
    seed=st.integers(0, 2**16),
)
def test_against_unfold(window, size, batch, groups, per_group, seed):
    spans = [d * (k - 1) + 1 for d, k in zip(window.dilation, window.kernel_size, strict=True)]
    size = tuple(max(n, s) for n, s in zip(size, spans, strict=True))
    torch.manual_seed(seed)
    out = window.output_size(*size)
    x = torch.randn(batch, groups * per_group, *size, dtype=torch.float64)
    y = torch.randn(batch, groups * per_group, *out, dtype=torch.float64)
    maps = torch.randn(batch, groups, window.taps, *out, dtype=torch.float64)
    columns = unfolded(x, groups, window)
    grouped = y.unflatten(1, (groups, -1))
    close = {"rtol": 0, "atol": 1e-10}
    torch.testing.assert_close(
        av(maps, x, window), (maps.unsqueeze(2) * columns).sum(3).flatten(1, 2), **close
    )
    torch.testing.assert_close(
        qk(y, x, groups, window), (grouped.unsqueeze(3) * columns).sum(2), **close
    )
    torch.testing.assert_close(
        sc(maps, y, size, window),
        folded(maps.unsqueeze(2) * grouped.unsqueeze(3), size, window),
        **close,
    )


@pytest.mark.usefixtures("backend")
@settings(
    max_examples=examples(120),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    window=windows,
    size=st.tuples(st.integers(1, 14), st.integers(1, 21)),
    batch=st.integers(1, 3),
    groups=st.integers(1, 3),
    per_group=st.sampled_from([1, 2, 5, 8]),
    depth=st.sampled_from([1, 2, 7, 16]),
    bias=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_maps_from_features_against_unfold(
    window, size, batch, groups, per_group, depth, bias, seed
):
    """Value and all gradients, where maps are made and used at once."""
    spans = [d * (k - 1) + 1 for d, k in zip(window.dilation, window.kernel_size, strict=True)]
    size = tuple(max(n, s) for n, s in zip(size, spans, strict=True))
    torch.manual_seed(seed)

    def leaf(*shape):
        return torch.randn(*shape, dtype=torch.float64, requires_grad=True)

    features, x = (
        leaf(batch, depth, *window.output_size(*size)),
        leaf(batch, groups * per_group, *size),
    )
    weight, offset = leaf(groups * window.taps, depth), leaf(groups * window.taps) if bias else None
    maps = F.conv2d(features, weight[:, :, None, None], offset).unflatten(1, (groups, 1, -1))
    expected = (maps * unfolded(x, groups, window)).sum(3).flatten(1, 2)
    found = spanned_av(features, x, weight, offset, groups, window)
    close = {"rtol": 1e-11, "atol": 1e-10}
    torch.testing.assert_close(found, expected, **close)
    slope, leaves = torch.randn_like(found), [features, x, weight, *([offset] if bias else [])]
    for ours, theirs in zip(
        torch.autograd.grad(found, leaves, slope),
        torch.autograd.grad(expected, leaves, slope),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, **close)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize(
    "window",
    [Window.centred(3), Window.centred(3, stride=2, dilation=2), Window.of((2, 3), (1, 2), 1, 1)],
    ids=["plain", "strided and dilated", "even"],
)
def test_derivatives_of_both_orders(window):
    torch.manual_seed(0)
    size, groups = (3, 4), 2
    out = window.output_size(*size)

    def leaf(*shape):
        return torch.randn(*shape, dtype=torch.float64, requires_grad=True)

    x, y = leaf(1, 4, *size), leaf(1, 4, *out)
    maps = leaf(1, groups, window.taps, *out)
    for function, inputs in (
        (lambda m, x: av(m, x, window), (maps, x)),
        (lambda q, x: qk(q, x, groups, window), (y, x)),
        (lambda m, y: sc(m, y, size, window), (maps, y)),
    ):
        assert torch.autograd.gradcheck(function, inputs)
        assert torch.autograd.gradgradcheck(function, inputs)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("at_once", [1, 2, 3])
@pytest.mark.parametrize("with_bias", [True, False])
def test_maps_from_features(with_bias, at_once, monkeypatch):
    """The 1×1 convolution and the aggregation apart, and derivatives of both orders; also where
    the native kernels cannot make the maps of all three images at once."""
    torch.manual_seed(0)
    window, groups = Window.centred(3, stride=2), 2
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    monkeypatch.setattr(composed, "_BUFFER_BYTES", at_once * 18 * 2 * 3 * 8)

    def leaf(*shape):
        return torch.randn(*shape, dtype=torch.float64, requires_grad=True)

    features, x, weight = leaf(3, 2, 2, 3), leaf(3, 4, 3, 5), leaf(18, 2)
    given = (features, x, weight, *([leaf(18)] if with_bias else []))

    def spanned(features, x, weight, bias=None):
        return spanned_av(features, x, weight, bias, groups, window)

    maps = F.conv2d(features, weight[:, :, None, None], given[3] if with_bias else None)
    expected = av(maps.unflatten(1, (groups, 9)), x, window)
    torch.testing.assert_close(spanned(*given), expected)
    assert torch.autograd.gradcheck(spanned, given)
    assert torch.autograd.gradgradcheck(spanned, tuple(t[:1] for t in given[:2]) + given[2:])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: av(torch.zeros(2, 9, 4, 4), torch.zeros(2, 4, 4, 4), Window.centred(3)),
            "Expected maps to have 5 axes but got shape (2, 9, 4, 4).",
        ),
        (
            lambda: av(torch.zeros(2, 1, 9, 4, 5), torch.zeros(2, 4, 4, 4), Window.centred(3)),
            "Expected maps of shape (B, G, K_h·K_w, H_out, W_out) = (2, 1, 9, 4, 4) but got "
            "(2, 1, 9, 4, 5).",
        ),
        (
            lambda: av(torch.zeros(2, 3, 9, 4, 4), torch.zeros(2, 4, 4, 4), Window.centred(3)),
            "Expected groups to divide the 4 channels but got 3. The nearest that does is 2.",
        ),
        (
            lambda: qk(torch.zeros(2, 5, 4, 4), torch.zeros(2, 4, 4, 4), 1, Window.centred(3)),
            "Expected q of shape (B, C, H_out, W_out) = (2, 4, 4, 4) but got (2, 5, 4, 4).",
        ),
        (
            lambda: spanned_av(*torch.zeros(2, 2, 4, 4, 4), torch.zeros(9, 3), None, 1, WINDOW),
            "Expected weight of shape (9, 4) but got (9, 3).",
        ),
        (
            lambda: spanned_av(
                *torch.zeros(2, 2, 4, 4, 4), torch.zeros(18, 4), torch.zeros(9), 2, WINDOW
            ),
            "Expected bias of shape (18,) but got (9,).",
        ),
    ],
)
def test_errors(call, message):
    with pytest.raises(InputError) as caught:
        call()
    assert str(caught.value) == message
