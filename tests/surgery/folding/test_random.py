"""Random small networks: the folded network is the gated one, in eval and in train mode."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import attnlab

from .networks import (
    BATCH_NORMS,
    CONVOLUTIONS,
    INSTANCE_NORMS,
    TRANSPOSED,
    Residual,
    in_both_modes,
    relative,
    stir,
    stir_gates,
)

GATES = ("se", "ie", "srm", "spa", "eca", "sem")
gate_specs = st.builds(
    lambda name, delta: f"asr:{name}*{delta}", st.sampled_from(GATES), st.integers(1, 3)
)


@st.composite
def convolutional(draw) -> tuple[nn.Module, torch.Tensor]:
    """conv, norm or none, relu or none; with or without a projection on the shortcut."""
    axes = draw(st.integers(1, 3))
    groups = draw(st.sampled_from((1, 2, 4)))
    channels = 4 * draw(st.integers(1, 3))
    stride = draw(st.integers(1, 2))
    size, bias = draw(st.sampled_from((1, 3))), draw(st.booleans())
    transposed = draw(st.booleans())
    build = (TRANSPOSED if transposed else CONVOLUTIONS)[axes]
    first = CONVOLUTIONS[axes](4, 8, 3, padding=1)
    last = build(8, channels, size, stride, size // 2, groups=groups, bias=bias)
    norm = draw(
        st.sampled_from(
            (
                nn.Identity(),
                BATCH_NORMS[axes](channels, eps=1e-3, momentum=0.3),
                BATCH_NORMS[axes](channels, track_running_stats=False),
                nn.GroupNorm(2, channels),
                INSTANCE_NORMS[axes](
                    channels, affine=True, track_running_stats=draw(st.booleans())
                ),
            )
        )
    )
    between = draw(st.sampled_from((nn.Identity(), nn.ReLU(), nn.LeakyReLU(0.2), nn.Dropout(0.0))))
    branch = nn.Sequential(first, nn.Tanh(), last, norm, between)
    images = torch.randn(3, 4, *[6] * axes)
    with torch.no_grad():
        same = branch(images).shape == images.shape
    shortcut: nn.Module = nn.Identity()
    if not same or draw(st.booleans()):
        shortcut = build(4, channels, size, stride, size // 2)
    return Residual(branch, shortcut, channels, axis=1), images


@st.composite
def tokens(draw) -> tuple[nn.Module, torch.Tensor]:
    """norm, linear layers, a norm on the branch or none; channels last."""
    width = 4 * draw(st.integers(1, 3))
    bias = draw(st.booleans())
    norm = draw(
        st.sampled_from(
            (nn.Identity(), nn.LayerNorm(width), nn.RMSNorm(width), nn.LayerNorm(width))
        )
    )
    branch = nn.Sequential(
        nn.LayerNorm(width), nn.Linear(width, 12), nn.GELU(), nn.Linear(12, width, bias=bias), norm
    )
    return Residual(branch, nn.Identity(), width, axis=-1), torch.randn(3, 5, width)


def check(built: tuple[nn.Module, torch.Tensor], spec: str, seed: int, tolerance: float) -> None:
    network, images = stir(built[0], seed), built[1].to(next(built[0].parameters()).dtype)
    keys = {name: value.shape for name, value in network.state_dict().items()}
    gated, inserted = attnlab.insert(network, spec, example=images, activation="sigmoid")
    stir_gates(gated, seed)
    before = in_both_modes(gated, images)
    plain, receipt = attnlab.fold(gated, example=images)
    assert {name: value.shape for name, value in plain.state_dict().items()} == keys
    assert len(receipt.rows) == len(inserted.sites) == 1
    assert receipt.rows[0].error <= 1e-12
    for expected, found in zip(before, in_both_modes(plain, images), strict=True):
        assert relative(expected, found) <= tolerance
    network.load_state_dict(plain.state_dict(), strict=True)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(convolutional(), gate_specs, st.integers(0, 10**6))
def test_convolutional_float64(built, spec, seed):
    check((built[0].double(), built[1]), spec, seed, 1e-12)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(tokens(), gate_specs, st.integers(0, 10**6))
def test_tokens_float64(built, spec, seed):
    check((built[0].double(), built[1]), spec, seed, 1e-12)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.one_of(convolutional(), tokens()), gate_specs, st.integers(0, 10**6))
def test_float32(built, spec, seed):
    check(built, spec, seed, 2e-5)
