"""Every gate against the paper's formula, written out in NumPy loops in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.gates.written_out import (
    CHANNELS,
    SHAPES,
    Array,
    Reference,
    State,
    adaptive_pool,
    along_channels,
    assert_is_the_formula,
    layers,
    pooled,
    sigmoid,
    trained,
)
from torch import Tensor

from attnlab.gates import _pooling


def se(x: Array, state: State) -> Array:
    return sigmoid(layers(pooled(x), state))[:, :, None, None]


def eca(x: Array, state: State) -> Array:
    return sigmoid(along_channels(pooled(x), state["conv.weight"].ravel()))[:, :, None, None]


def ie(x: Array, state: State) -> Array:
    return sigmoid(pooled(x) * state["weight"] + state["bias"])[:, :, None, None]


def sem(x: Array, state: State) -> Array:
    z = pooled(x)
    g = sigmoid(z @ state["switch.weight"].T + state["switch.bias"])
    gate = sigmoid(layers(z, state) * g[:, 0:1])
    gate = gate * sigmoid(along_channels(z, state["conv.weight"].ravel()) * g[:, 1:2])
    gate = gate * sigmoid((z * state["weight"] + state["bias"]) * g[:, 2:3])
    return gate[:, :, None, None]


def srm(x: Array, state: State) -> Array:
    pixels = x.shape[2] * x.shape[3]
    variance = x.var(axis=(2, 3), ddof=1) if pixels > 1 else np.zeros(x.shape[:2])
    z = state["style"][:, 0] * pooled(x) + state["style"][:, 1] * np.sqrt(variance + 1e-5)
    z = (z - z.mean(axis=0)) / np.sqrt(z.var(axis=0) + 1e-5)
    return sigmoid(z * state["norm.weight"] + state["norm.bias"])[:, :, None, None]


def fca(x: Array, state: State) -> Array:
    size = 32  # of the DCT at 32 channels
    u = [0, 0, 6, 0, 0, 1, 1, 4, 5, 1, 3, 0, 0, 0, 3, 2]
    v = [0, 1, 0, 5, 2, 0, 2, 0, 0, 6, 0, 4, 6, 3, 5, 2]

    def cosine(frequency: int, position: int) -> float:
        value = math.cos(math.pi * frequency * (position + 0.5) / size) / math.sqrt(size)
        return value if frequency == 0 else value * math.sqrt(2)

    small = adaptive_pool(x, size)
    z = np.zeros(x.shape[:2])
    for c in range(x.shape[1]):
        group = c // (x.shape[1] // 16)
        rows = np.array([cosine(u[group] * (size // 7), h) for h in range(size)])
        columns = np.array([cosine(v[group] * (size // 7), w) for w in range(size)])
        z[:, c] = (small[:, c] * rows[:, None] * columns[None, :]).sum(axis=(1, 2))
    return sigmoid(layers(z, state))[:, :, None, None]


def spa(x: Array, state: State) -> Array:
    pyramid = [adaptive_pool(x, level).reshape(len(x), -1) for level in (1, 2, 4)]
    return sigmoid(layers(np.concatenate(pyramid, axis=1), state))[:, :, None, None]


def sge(x: Array, state: State) -> Array:
    batch, channels, height, width = x.shape
    groups = len(state["weight"])
    gate = np.empty_like(x)
    for b in range(batch):
        for c, members in enumerate(np.split(np.arange(channels), groups)):
            mean = x[b, members].mean(axis=(1, 2))
            t = sum(m * x[b, member] for m, member in zip(mean, members, strict=True))
            deviation = t.std(ddof=1) if height * width > 1 else 0.0
            t = (t - t.mean()) / (deviation + 1e-5)
            gate[b, members] = sigmoid(t * state["weight"][c] + state["bias"][c])
    return gate


def cbam(x: Array, state: State) -> Array:
    channel = sigmoid(layers(pooled(x), state) + layers(x.max(axis=(2, 3)), state))
    refined = x * channel[:, :, None, None]
    planes = np.stack((refined.max(axis=1), refined.mean(axis=1)), axis=1)
    kernel = state["conv.weight"][0]
    padded = np.pad(planes, ((0, 0), (0, 0), (3, 3), (3, 3)))
    spatial = np.zeros((len(x), *x.shape[2:]))
    for i in range(x.shape[2]):
        for j in range(x.shape[3]):
            spatial[:, i, j] = (padded[:, :, i : i + 7, j : j + 7] * kernel).sum(axis=(1, 2, 3))
    if "norm.weight" in state:
        spatial = (spatial - spatial.mean()) / np.sqrt(spatial.var() + 1e-5)
        spatial = spatial * state["norm.weight"] + state["norm.bias"]
    return channel[:, :, None, None] * sigmoid(spatial)[:, None]


def iebn(x: Array, state: State) -> Array:
    mean = x.mean(axis=(0, 2, 3), keepdims=True)
    normalised = (x - mean) / np.sqrt(x.var(axis=(0, 2, 3), keepdims=True) + 1e-5)
    gate = sigmoid(state["gate.weight"] * pooled(x) + state["gate.bias"])
    gamma = (state["weight"] * gate)[:, :, None, None]
    return normalised * gamma + state["bias"][None, :, None, None]


def dia(x: Array, state: State) -> Array:
    """The second block's gate, when the first block saw the images in reverse order."""
    hidden = cell = np.zeros(x.shape[:2])
    for images in (x[::-1], x):
        mixed = layers(pooled(images), state, "from_input") + layers(hidden, state, "from_memory")
        i, f, g, o = np.split(mixed, 4, axis=1)
        cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
        hidden = sigmoid(o) * sigmoid(cell)
    return hidden[:, :, None, None]


def step_states(x: Array) -> tuple[Array, Array]:
    """The maps x_t and x_{t+1}, formed in full."""
    shortcut = x[::-1]
    return shortcut, shortcut + x


def batch_norm(z: Array, state: State, name: str = "response.norm") -> Array:
    z = (z - z.mean(axis=0)) / np.sqrt(z.var(axis=0) + 1e-5)
    return z * state[f"{name}.weight"] + state[f"{name}.bias"]


def group_convolution(states: tuple[Array, ...], weight: Array) -> Array:
    """Per channel a weighted sum of the full maps, pooled afterwards as in the paper's figure."""
    mixed = np.zeros_like(states[0])
    for c in range(mixed.shape[1]):
        for w, each in zip(weight[:, c], states, strict=True):
            mixed[:, c] += w * each[:, c]
    return pooled(mixed)


def step(x: Array, state: State) -> Array:
    z = batch_norm(group_convolution(step_states(x), state["response.conv.weight"]), state)
    z = state["response.ie.weight"] * z + state["response.ie.bias"]
    return sigmoid(z)[:, :, None, None]


def step_conv_bn(x: Array, state: State) -> Array:
    z = group_convolution(step_states(x), state["response.conv.weight"])
    return sigmoid(batch_norm(z, state))[:, :, None, None]


def step_conv_ie(x: Array, state: State) -> Array:
    z = group_convolution(step_states(x), state["response.conv.weight"])
    return sigmoid(state["response.ie.weight"] * z + state["response.ie.bias"])[:, :, None, None]


def step_conv_iebn(x: Array, state: State) -> Array:
    z = group_convolution(step_states(x), state["response.conv.weight"])
    inner = sigmoid(state["response.norm.gate.weight"] * z + state["response.norm.gate.bias"])
    normalised = (z - z.mean(axis=0)) / np.sqrt(z.var(axis=0) + 1e-5)
    gamma, beta = state["response.norm.weight"], state["response.norm.bias"]
    return sigmoid(normalised * gamma * inner + beta)[:, :, None, None]


def step_mlp(x: Array, state: State) -> Array:
    pair = np.concatenate([pooled(each) for each in step_states(x)], axis=1)
    return sigmoid(layers(pair, state, "response.excitation"))[:, :, None, None]


def step_single(which: str) -> Callable[[Array, State], Array]:
    def reference(x: Array, state: State) -> Array:
        here, there = step_states(x)
        states = {"shortcut": (here,), "next": (there,), "difference": (there - here,)}[which]
        z = batch_norm(group_convolution(states, state["response.conv.weight"]), state)
        z = state["response.ie.weight"] * z + state["response.ie.bias"]
        return sigmoid(z)[:, :, None, None]

    return reference


REFERENCES: list[tuple[str, dict[str, object], Callable[[Array, State], Array]]] = [
    ("se", {}, se),
    ("se", {"bias": False}, se),
    ("eca", {}, eca),
    ("eca", {"kernel_size": 5}, eca),
    ("ie", {}, ie),
    ("sem", {}, sem),
    ("srm", {}, srm),
    ("fca", {}, fca),
    ("spa", {}, spa),
    ("sge", {}, sge),
    ("sge", {"groups": 8}, sge),
    ("sge", {"groups": 2}, sge),
    ("cbam", {}, cbam),
    ("cbam", {"official": True}, cbam),
    ("iebn", {}, iebn),
    ("dia", {}, dia),
    ("step", {}, step),
    ("step", {"structure": "conv-bn"}, step_conv_bn),
    ("step", {"structure": "conv-ie"}, step_conv_ie),
    ("step", {"structure": "conv-iebn"}, step_conv_iebn),
    ("step", {"structure": "mlp"}, step_mlp),
    *(
        ("step", {"inputs": which}, step_single(which))
        for which in ("shortcut", "next", "difference")
    ),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
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


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("name", ["srm", "sge", "cbam", "fca", "simam", "gct", "ema"])
def test_large_batches_are_computed_in_pieces_without_a_difference(
    name: str, order: torch.memory_format, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Value and gradient against the whole; seven images come in pieces of three, three and one."""
    module = trained(name, CHANNELS, {}).eval()
    images = torch.randn(7, CHANNELS, 8, 8, dtype=torch.float64).to(memory_format=order)

    def run() -> tuple[Tensor, Tensor]:
        x = images.clone().requires_grad_()
        gate = module(x)
        (grad,) = torch.autograd.grad((gate * x).square().sum(), x)
        return gate, grad

    expected = run()
    seen: list[int] = []
    cat = torch.cat

    def noted(parts: Any, *others: Any, **options: Any) -> Tensor:
        seen.append(len(parts))
        return cat(parts, *others, **options)

    monkeypatch.setattr(_pooling, "WHOLE", 0)
    monkeypatch.setattr(_pooling, "PIECE", 3 * CHANNELS * 8 * 8)
    monkeypatch.setattr(_pooling.torch, "cat", noted)
    found = run()
    assert (3 in seen) != ((name, order) == ("gct", torch.contiguous_format))  # a norm of torch's
    for ours, whole in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, whole, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", ["srm", "sge", "cbam", "fca"])
def test_second_derivatives_of_handwritten_gradients(name: str) -> None:
    module = trained(name, 4, {}).eval()
    x = torch.randn(2, 4, 3, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(module, (x,))


def test_second_derivatives_of_a_group_of_many_channels() -> None:
    module = trained("sge", 10, {"groups": 1}).eval()
    x = torch.randn(2, 10, 2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(module, (x,))
    assert torch.autograd.gradgradcheck(module, (x,))


def test_variance_of_a_channel_with_a_large_mean_is_not_lost() -> None:
    from attnlab.gates._statistics import spatial_moments

    x = 1000 + torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    _, variance = spatial_moments(x)
    expected = x.double().var(dim=(2, 3)).float()
    torch.testing.assert_close(variance, expected, rtol=1e-3, atol=0)


def test_ties_share_the_gradient_of_the_maximum_as_in_torch() -> None:
    from attnlab.gates._statistics import spatial_mean_max

    x = torch.tensor([2.0, 1.0, 2.0, 0.0], dtype=torch.float64).view(1, 1, 2, 2).requires_grad_()
    spatial_mean_max(x)[1].sum().backward()
    expected = torch.tensor([0.5, 0.0, 0.5, 0.0], dtype=torch.float64).view(1, 1, 2, 2)
    torch.testing.assert_close(x.grad, expected)
