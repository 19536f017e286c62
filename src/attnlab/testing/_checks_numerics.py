"""Memory order, precision, determinism."""

from __future__ import annotations

import torch
from torch import Tensor

from attnlab.testing._probe import CHANNELS, MAPS, Build, Probe, build_awake, features

TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 6e-2}


def relative_error(value: Tensor, reference: Tensor) -> float:
    """The largest error relative to the largest value."""
    scale = reference.abs().max().clamp(min=1e-12)
    return ((value.to(reference.dtype) - reference).abs().max() / scale).item()


def keeps_channels_last(build: Build) -> None:
    """In channels last, the product with the branch stays so, with the same values."""
    for channels in CHANNELS:
        for size in MAPS[:2]:
            probe = Probe(build_awake(build, channels)).eval()
            branch = features(channels, size)
            last = branch.contiguous(memory_format=torch.channels_last)
            gate = probe(last)
            error = relative_error(gate, probe(branch))
            assert error < 1e-12, f"{channels} channels, map {size}: differs by {error:.1e}"
            for product in (gate * last, last * gate):
                kept = product.is_contiguous(memory_format=torch.channels_last)
                assert kept, f"{channels} channels, map {size}: the product has another order"


def low_precision(build: Build) -> None:
    """float32 and bfloat16 agree with float64 on the same rounded values, and keep their dtype."""
    for channels in CHANNELS:
        for dtype, tolerance in TOLERANCE.items():
            branch = features(channels).to(dtype)
            probe = Probe(build_awake(build, channels)).eval().to(dtype)
            gate = probe(branch)
            reference = probe.double()(branch.double())
            assert gate.dtype == dtype, f"{dtype} gave {gate.dtype}"
            error = relative_error(gate, reference)
            assert error < tolerance, f"{channels} channels in {dtype}: error {error:.1e}"


def autocast(build: Build) -> None:
    """Under autocast the branch keeps its dtype when multiplied, forward and backward."""
    for dtype in (torch.bfloat16, torch.float32):
        probe = Probe(build_awake(build, 17)).train().float()
        branch = features(17).to(dtype).requires_grad_()
        reference = Probe(build_awake(build, 17)).train()(branch.double())
        with torch.autocast("cpu", torch.bfloat16):
            gate = probe(branch)
            product = gate * branch
        assert product.dtype == dtype, f"a {dtype} branch became {product.dtype}"
        error = relative_error(gate, reference)
        assert error < TOLERANCE[torch.bfloat16], f"{dtype} branch: error {error:.1e}"
        product.sum().backward()


def deterministic(build: Build) -> None:
    """The same input gives the same bits twice."""
    branch = features(58).float()
    for training in (True, False):
        first = Probe(build_awake(build, 58)).float().train(training)(branch)
        second = Probe(build_awake(build, 58)).float().train(training)(branch)
        assert torch.equal(first, second), f"training={training}: two calls differ"


CHECKS = (keeps_channels_last, low_precision, autocast, deterministic)
