"""BAM, scSE, eSE, GE, GC, CA, ELA, SimAM, Triplet, EMA, GAM and GCT, written out in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.gates.written_out import (
    CHANNELS,
    SHAPES,
    Array,
    Reference,
    State,
    assert_is_the_formula,
    convolved,
    layers,
    normalised,
    pooled,
    sigmoid,
    trained,
)

from attnlab.gates import build_gate


def relu(x: Array) -> Array:
    return np.maximum(x, 0)


def hard_sigmoid(x: Array) -> Array:
    return np.clip(x + 3, 0, 6) / 6


def softmax(x: Array, axis: int) -> Array:
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def of(state: State, name: str) -> tuple[Array, Array]:
    return state[f"{name}.weight"], state[f"{name}.bias"]


def dense(z: Array, state: State, name: str) -> Array:
    weight, bias = of(state, name)
    return z @ weight.reshape(len(weight), -1).T + bias


def bam_branches(x: Array, state: State) -> tuple[Array, Array]:
    hidden = relu(normalised(dense(pooled(x), state, "channel.fc1"), state, "channel.norm"))
    channel = dense(hidden, state, "channel.fc2")[:, :, None, None]
    y = convolved(x, *of(state, "spatial.reduce"))
    y = relu(normalised(y, state, "spatial.norm0"))
    for number in (1, 2):
        y = convolved(y, *of(state, f"spatial.conv{number}"), padding=4, dilation=4)
        y = relu(normalised(y, state, f"spatial.norm{number}"))
    return channel, convolved(y, *of(state, "spatial.weigh"))


def bam(x: Array, state: State) -> Array:
    channel, spatial = bam_branches(x, state)
    return 1 + sigmoid(channel + spatial)


def bam_official(x: Array, state: State) -> Array:
    channel, spatial = bam_branches(x, state)
    return 1 + sigmoid(channel * spatial)


def scse_parts(x: Array, state: State) -> tuple[Array, Array]:
    channel = sigmoid(layers(pooled(x), state))[:, :, None, None]
    weight, bias = of(state, "conv")
    spatial = sigmoid(sum(w * x[:, c] for c, w in enumerate(weight.ravel())) + bias[0])
    return channel, spatial[:, None]


def scse(x: Array, state: State) -> Array:
    channel, spatial = scse_parts(x, state)
    return channel + spatial


def scse_official(x: Array, state: State) -> Array:
    """max(c x, s x) / x. No pixel of the test is 0."""
    channel, spatial = scse_parts(x, state)
    return np.maximum(channel * x, spatial * x) / x


def ese(x: Array, state: State) -> Array:
    return sigmoid(dense(pooled(x), state, "fc"))[:, :, None, None]


def ese_official(x: Array, state: State) -> Array:
    return hard_sigmoid(dense(pooled(x), state, "fc"))[:, :, None, None]


def ge(x: Array, state: State) -> Array:
    del state
    return sigmoid(pooled(x))[:, :, None, None]


def nearest(small: Array, like: Array) -> Array:
    out = np.empty_like(like)
    for i in range(like.shape[2]):
        for j in range(like.shape[3]):
            row = i * small.shape[2] // like.shape[2]
            out[:, :, i, j] = small[:, :, row, j * small.shape[3] // like.shape[3]]
    return out


def ge_of_extent_4(x: Array, state: State) -> Array:
    """The mean of the pixels at most 3 away from every fourth one."""
    del state
    rows, columns = (range(0, size, 4) for size in x.shape[2:])
    small = np.empty((*x.shape[:2], len(rows), len(columns)))
    for a, i in enumerate(rows):
        for b, j in enumerate(columns):
            window = x[:, :, max(0, i - 3) : i + 4, max(0, j - 3) : j + 4]
            small[:, :, a, b] = window.mean(axis=(2, 3))
    return nearest(sigmoid(small), x)


def gep(x: Array, state: State) -> Array:
    y = x
    for number in (1, 2, 3):
        weight = state[f"gather.conv{number}.weight"]
        y = convolved(y, weight, padding=1, stride=2, groups=x.shape[1])
        y = normalised(y, state, f"gather.norm{number}")
        if number < 3:
            y = relu(y)
    return nearest(sigmoid(y), x)


def gep_of_the_whole_map(x: Array, state: State) -> Array:
    y = np.einsum("bchw,chw->bc", x, state["gather.conv1.weight"][:, 0])[:, :, None, None]
    return sigmoid(normalised(y, state, "gather.norm1"))


def gc_of_context(context: Array, state: State) -> Array:
    y = dense(context, state, "fc1")
    y = (y - y.mean(axis=1, keepdims=True)) / np.sqrt(y.var(axis=1, keepdims=True) + 1e-5)
    weight, bias = of(state, "norm")
    return sigmoid(dense(relu(y * weight + bias), state, "fc2"))[:, :, None, None]


def gc(x: Array, state: State) -> Array:
    pixels = x.reshape(*x.shape[:2], -1)
    weights = softmax(np.einsum("c,bcn->bn", state["mask.weight"][0], pixels), axis=1)
    return gc_of_context(np.einsum("bcn,bn->bc", pixels, weights), state)


def gc_of_means(x: Array, state: State) -> Array:
    return gc_of_context(pooled(x), state)


def coord(x: Array, state: State) -> Array:
    rows, columns = x.mean(axis=3), x.mean(axis=2)
    strips = np.concatenate((rows, columns), axis=2)[..., None]
    weight, bias = of(state, "reduce")
    y = normalised(convolved(strips, weight[..., None], bias), state, "norm")
    y = y * hard_sigmoid(y)
    rows, columns = y[:, :, : x.shape[2]], y[:, :, x.shape[2] :]
    (of_rows, rows_bias), (of_columns, columns_bias) = of(state, "rows"), of(state, "columns")
    g = sigmoid(convolved(rows, of_rows[..., None], rows_bias))
    h = sigmoid(convolved(columns, of_columns[..., None], columns_bias))
    return g * h.transpose(0, 1, 3, 2)


def strip_gate(strip: Array, state: State, name: str, groups: int, norm_groups: int) -> Array:
    weight = state[f"{name}.conv.weight"][..., None]
    reach = weight.shape[2] // 2
    padded = np.pad(strip, ((0, 0), (0, 0), (reach, reach)))[..., None]
    y = convolved(padded, weight, groups=groups)[..., 0]
    grouped = y.reshape(len(y), norm_groups, -1)
    grouped = grouped - grouped.mean(axis=2, keepdims=True)
    grouped = grouped / np.sqrt((grouped**2).mean(axis=2, keepdims=True) + 1e-5)
    scale, offset = of(state, f"{name}.norm")
    return sigmoid(grouped.reshape(y.shape) * scale[:, None] + offset[:, None])


def ela_version(groups: int, norm_groups: int, columns: str = "rows") -> Reference:
    def reference(x: Array, state: State) -> Array:
        of_rows = strip_gate(x.mean(axis=3), state, "rows", groups, norm_groups)
        of_columns = strip_gate(x.mean(axis=2), state, columns, groups, norm_groups)
        return of_rows[:, :, :, None] * of_columns[:, :, None, :]

    return reference


def simam_divided_by(fewer: int) -> Reference:
    def reference(x: Array, state: State) -> Array:
        del state
        pixels = x.shape[2] * x.shape[3]
        d = (x - x.mean(axis=(2, 3), keepdims=True)) ** 2
        v = d.sum(axis=(2, 3), keepdims=True) / max(1, pixels - fewer)
        return sigmoid(d / (4 * (v + 1e-4)) + 0.5)

    return reference


def plane_gate(x: Array, state: State, name: str) -> Array:
    """Of the axes after the first two, when the second one is pooled away."""
    planes = np.stack((x.max(axis=1), x.mean(axis=1)), axis=1)
    y = convolved(planes, state[f"{name}.conv.weight"], padding=3)
    return sigmoid(normalised(y, state, f"{name}.norm"))


def triplet_pair(x: Array, state: State) -> Array:
    """Turned as in the paper: the height, and then the width, in the place of the channels."""
    first = plane_gate(x.transpose(0, 2, 1, 3), state, "channel_width").transpose(0, 2, 1, 3)
    second = plane_gate(x.transpose(0, 3, 2, 1), state, "height_channel").transpose(0, 3, 2, 1)
    return first + second


def triplet(x: Array, state: State) -> Array:
    return (triplet_pair(x, state) + plane_gate(x, state, "height_width")) / 3


def triplet_without_space(x: Array, state: State) -> Array:
    return triplet_pair(x, state) / 2


def ema_of_groups(groups: int) -> Reference:
    def reference(x: Array, state: State) -> Array:
        batch, channels, height, width = x.shape
        g = x.reshape(batch * groups, channels // groups, height, width)
        strips = np.concatenate((g.mean(axis=3), g.mean(axis=2)), axis=2)[..., None]
        weight, bias = of(state, "strips")
        strips = sigmoid(convolved(strips, weight[..., None], bias))
        u = g * strips[:, :, :height] * strips[:, :, height:].transpose(0, 1, 3, 2)
        u = u - u.mean(axis=(2, 3), keepdims=True)
        u = u / np.sqrt((u**2).mean(axis=(2, 3), keepdims=True) + 1e-5)
        scale, offset = of(state, "norm")
        u = u * scale[:, None, None] + offset[:, None, None]
        v = convolved(g, *of(state, "conv"), padding=1)
        by_u, by_v = (softmax(each.mean(axis=(2, 3)), axis=1)[..., None, None] for each in (u, v))
        gate = sigmoid((by_u * v).sum(axis=1) + (by_v * u).sum(axis=1))
        return gate.reshape(batch, groups, height, width).repeat(channels // groups, axis=1)

    return reference


def gam_with(squash: bool) -> Reference:
    def reference(x: Array, state: State) -> Array:
        c = relu(convolved(x, *of(state, "fc1")))
        c = convolved(c, *of(state, "fc2"))
        c = sigmoid(c) if squash else c
        y = relu(normalised(convolved(c * x, *of(state, "conv1"), padding=3), state, "norm1"))
        y = normalised(convolved(y, *of(state, "conv2"), padding=3), state, "norm2")
        return c * sigmoid(y)

    return reference


def gct(x: Array, state: State) -> Array:
    e = state["alpha"] * np.sqrt((x**2).sum(axis=(2, 3)) + 1e-5)
    relative = e / np.sqrt((e**2).mean(axis=1, keepdims=True) + 1e-5)
    return (1 + np.tanh(state["gamma"] * relative + state["beta"]))[:, :, None, None]


REFERENCES: list[tuple[str, dict[str, object], Reference]] = [
    ("bam", {}, bam),
    ("bam", {"official": True}, bam_official),
    ("scse", {}, scse),
    ("scse", {"official": True}, scse_official),
    ("ese", {}, ese),
    ("ese", {"official": True}, ese_official),
    ("ge", {}, ge),
    ("ge", {"extent": 4}, ge_of_extent_4),
    ("gep", {}, gep),
    ("gc", {}, gc),
    ("gc", {"pooling": "mean"}, gc_of_means),
    ("coord", {}, coord),
    ("ela", {}, ela_version(CHANNELS, 16)),
    ("ela", {"version": "T"}, ela_version(CHANNELS, 32)),
    ("ela", {"version": "L"}, ela_version(CHANNELS // 8, 16)),
    ("ela", {"version": "S", "shared": False}, ela_version(CHANNELS // 8, 16, "columns")),
    ("simam", {}, simam_divided_by(1)),
    ("simam", {"unbiased": False}, simam_divided_by(0)),
    ("triplet", {}, triplet),
    ("triplet", {"spatial": False}, triplet_without_space),
    ("ema", {}, ema_of_groups(32)),
    ("ema", {"groups": 8}, ema_of_groups(8)),
    ("gam", {}, gam_with(True)),
    ("gam", {"official": True}, gam_with(False)),
    ("gct", {}, gct),
]


@pytest.mark.parametrize("shape", SHAPES[1:], ids=str)
@pytest.mark.parametrize(
    ("name", "options", "reference"), REFERENCES, ids=[f"{n} {o}" for n, o, _ in REFERENCES]
)
def test_gate_is_the_formula(
    name: str,
    options: dict[str, object],
    reference: Reference,
    shape: tuple[int, int, int, int],
) -> None:
    assert_is_the_formula(name, options, reference, shape)


def test_gather_excite_with_one_convolution_as_large_as_the_map() -> None:
    options: dict[str, object] = {"extent": 0, "map_size": 6}
    assert_is_the_formula("gep", options, gep_of_the_whole_map, (3, 8, 6, 6))


def test_scse_of_a_pixel_that_is_zero_is_one_of_its_parts() -> None:
    """There max(c x, s x) = 0 whatever the gate is; it must be finite and is the larger part."""
    module = trained("scse", 4, {"official": True})
    x = torch.zeros(1, 4, 2, 2, dtype=torch.float64)
    state = {key: value.numpy().copy() for key, value in module.state_dict().items()}
    expected = np.maximum(*np.broadcast_arrays(*scse_parts(x.numpy(), state)))
    np.testing.assert_allclose(module(x).detach().numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["ema", "simam", "gct", "triplet", "gc"])
def test_second_derivatives(name: str) -> None:
    module = trained(name, 4, {}).eval()
    x = torch.randn(2, 4, 3, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(module, (x,))


@pytest.mark.parametrize("name", ["simam", "gct", "ema", "gc"])
def test_float16_does_not_overflow(name: str) -> None:
    """A channel of size 200 has squares and sums of squares beyond the range of float16."""
    torch.manual_seed(0)
    gate = build_gate(name, 32).eval()
    x = 200 * torch.randn(2, 32, 16, 16)
    half = gate.half()(x.half())
    assert half.dtype == torch.float16
    torch.testing.assert_close(half.float(), gate.float()(x.half().float()), rtol=5e-3, atol=5e-3)
