"""What the references share: formulas written out in NumPy, and gates with random parameters."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from attnlab.gates import StageGate, StepGate, build_gate

Array = NDArray[np.float64]
State = dict[str, Array]

CHANNELS = 32
SHAPES = ((3, CHANNELS, 32, 32), (3, CHANNELS, 5, 7), (2, CHANNELS, 8, 12), (3, CHANNELS, 1, 1))


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def layers(z: Array, state: State, name: str = "excitation") -> Array:
    """Two fully connected layers with ReLU between them, one output at a time."""
    w1, w2 = state[f"{name}.fc1.weight"], state[f"{name}.fc2.weight"]
    b1 = state.get(f"{name}.fc1.bias", np.zeros(len(w1)))
    b2 = state.get(f"{name}.fc2.bias", np.zeros(len(w2)))
    hidden = np.array(
        [[max(0.0, float(w @ row) + b) for w, b in zip(w1, b1, strict=True)] for row in z]
    )
    return np.array([[float(w @ row) + b for w, b in zip(w2, b2, strict=True)] for row in hidden])


def pooled(x: Array) -> Array:
    return np.array([[np.average(channel) for channel in image] for image in x])


def along_channels(z: Array, kernel: Array) -> Array:
    """Correlation of z with the kernel along the channels, zeros outside."""
    reach = len(kernel) // 2
    out = np.zeros_like(z)
    for c in range(z.shape[1]):
        for k, weight in enumerate(kernel):
            if 0 <= c + k - reach < z.shape[1]:
                out[:, c] += weight * z[:, c + k - reach]
    return out


def adaptive_pool(x: Array, bins: int) -> Array:
    """Adaptive average pooling of the last two axes."""
    height, width = x.shape[-2:]
    out = np.empty((*x.shape[:-2], bins, bins))
    for i in range(bins):
        for j in range(bins):
            rows = slice(i * height // bins, math.ceil((i + 1) * height / bins))
            columns = slice(j * width // bins, math.ceil((j + 1) * width / bins))
            out[..., i, j] = x[..., rows, columns].mean(axis=(-2, -1))
    return out


def normalised(z: Array, state: State, name: str) -> Array:
    """BatchNorm with the statistics of this batch, over every axis but the second."""
    axes = tuple(axis for axis in range(z.ndim) if axis != 1)
    z = (z - z.mean(axis=axes, keepdims=True)) / np.sqrt(z.var(axis=axes, keepdims=True) + 1e-5)
    column = (-1, *[1] * (z.ndim - 2))
    return z * state[f"{name}.weight"].reshape(column) + state[f"{name}.bias"].reshape(column)


def convolved(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    padding: int = 0,
    dilation: int = 1,
    stride: int = 1,
    groups: int = 1,
) -> Array:
    """Correlation of (batch, channels, height, width), one weight at a time, zeros outside."""
    batch, channels, height, width = x.shape
    outputs, members, *kernel = weight.shape
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    rows = (height + 2 * padding - dilation * (kernel[0] - 1) - 1) // stride + 1
    columns = (width + 2 * padding - dilation * (kernel[1] - 1) - 1) // stride + 1
    out = np.zeros((batch, outputs, rows, columns))
    for o in range(outputs):
        for m in range(members):
            channel = o // (outputs // groups) * (channels // groups) + m
            for i in range(kernel[0]):
                for j in range(kernel[1]):
                    top, left = i * dilation, j * dilation
                    window = x[:, channel, top:, left:][
                        :, : (rows - 1) * stride + 1 : stride, : (columns - 1) * stride + 1 : stride
                    ]
                    out[:, o] += weight[o, m, i, j] * window
    return out if bias is None else out + bias[None, :, None, None]


Reference = Callable[[Array, State], Array]


def trained(name: str, channels: int, options: dict[str, object]) -> nn.Module:
    """The gate with random parameters, in training mode, built in float64."""
    torch.set_default_dtype(torch.float64)
    try:
        module = build_gate(name, channels, **options).train()
    finally:
        torch.set_default_dtype(torch.float32)
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            values = torch.randn(parameter.shape, generator=random, dtype=torch.float64)
            parameter.copy_(0.5 * values)
    return module


def attention_value(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    if isinstance(module, StepGate):
        return module(x.flip(0), x)
    if isinstance(module, StageGate):
        _, memory = module(x.flip(0), None)
        return module(x, memory)[0]
    return module(x)


def assert_is_the_formula(
    name: str, options: dict[str, object], reference: Reference, shape: tuple[int, ...]
) -> None:
    module = trained(name, shape[1], options)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.3
    state = {key: value.numpy().copy() for key, value in module.state_dict().items()}
    expected = reference(x.numpy(), state)
    for order, gradients in itertools.product(
        (torch.contiguous_format, torch.channels_last), (True, False)
    ):
        with torch.set_grad_enabled(gradients):
            got = attention_value(module, x.contiguous(memory_format=order)).detach().numpy()
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-12)
