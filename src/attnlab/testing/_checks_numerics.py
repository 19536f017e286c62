"""Checks of memory order, precision and determinism, and of the ranks of maps: a gate takes
sequences, volumes and tokens, or refuses them clearly."""

from __future__ import annotations

import torch
from torch import Tensor

from attnlab._errors import InputError
from attnlab.gates import Gate
from attnlab.testing._probe import CHANNELS, MAPS, Build, GateProbe, build_awake, features, is_norm

TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 6e-2}


def relative_error(value: Tensor, reference: Tensor) -> float:
    """The largest error relative to the largest value."""
    scale = reference.abs().max().clamp(min=1e-12)
    return ((value.to(reference.dtype) - reference).abs().max() / scale).item()


def keeps_channels_last(build: Build) -> None:
    """Check that, in channels last, the product with the branch stays so, with the same values."""
    for channels in CHANNELS:
        for size in MAPS[:2]:
            probe = GateProbe(build_awake(build, channels)).eval()
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
            probe = GateProbe(build_awake(build, channels)).eval().to(dtype)
            gate = probe(branch)
            reference = probe.double()(branch.double())
            assert gate.dtype == dtype, f"{dtype} gave {gate.dtype}"
            error = relative_error(gate, reference)
            assert error < tolerance, f"{channels} channels in {dtype}: error {error:.1e}"


def autocast(build: Build) -> None:
    """Under autocast the branch keeps its dtype when multiplied, forward and backward."""
    for dtype in (torch.bfloat16, torch.float32):
        probe = GateProbe(build_awake(build, 17)).train().float()
        branch = features(17).to(dtype).requires_grad_()
        reference = GateProbe(build_awake(build, 17)).train()(branch.double())
        with torch.autocast("cpu", torch.bfloat16):
            gate = probe(branch)
            product = gate * branch
        assert product.dtype == dtype, f"a {dtype} branch became {product.dtype}"
        error = relative_error(gate, reference)
        assert error < TOLERANCE[torch.bfloat16], f"{dtype} branch: error {error:.1e}"
        product.sum().backward()


def is_deterministic(build: Build) -> None:
    """The same input gives the same bits twice."""
    branch = features(58).float()
    for training in (True, False):
        first = GateProbe(build_awake(build, 58)).float().train(training)(branch)
        second = GateProbe(build_awake(build, 58)).float().train(training)(branch)
        assert torch.equal(first, second), f"training={training}: two calls differ"


def takes_sequences(build: Build) -> None:
    """(batch, channels, length), if `ranks` has 1; otherwise refused."""
    _takes(build, (9,))


def takes_volumes(build: Build) -> None:
    """(batch, channels, depth, height, width), if `ranks` has 3; otherwise refused."""
    _takes(build, (2, 3, 4))


def takes_tokens(build: Build) -> None:
    """(batch, tokens, channels) are refused; moved to the second axis, channels make a sequence."""
    module = build_awake(build, 17)
    if is_norm(module):
        return
    tokens = features(17, (9,)).transpose(1, 2).contiguous()
    _refused(module, tokens)
    assert isinstance(module, Gate)
    if 1 in module.ranks:
        probe, moved = GateProbe(module).eval(), tokens.transpose(1, 2)
        error = (probe(moved) - probe(moved.contiguous())).abs().max().item()
        assert error < 1e-12, f"moved tokens differ by {error:.1e} from a sequence"


def _takes(build: Build, size: tuple[int, ...]) -> None:
    module = build_awake(build, 17)
    if is_norm(module):  # torch's own, which is of one rank
        return
    assert isinstance(module, Gate)
    branch = features(17, size)
    if len(size) not in module.ranks:
        _refused(module, branch)
        return
    probe = GateProbe(module).eval()
    gate = probe(branch)
    fits = gate.dim() == branch.dim() and (gate * branch).shape == branch.shape
    assert fits, f"a map of shape {tuple(branch.shape)} got a gate of {tuple(gate.shape)}"
    # Which only a gate can pass to which the arrangement of the pixels is all the same.
    column = branch.flatten(2).unsqueeze(-1)
    expected = probe(column).expand_as(column).reshape(branch.shape)
    error = (gate - expected).abs().max().item()
    assert error < 1e-12, f"differs by {error:.1e} from the same pixels in one column"


def _refused(module: torch.nn.Module, branch: torch.Tensor) -> None:
    try:
        GateProbe(module).eval()(branch)
    except InputError as error:
        if str(tuple(branch.shape)) not in str(error):
            raise AssertionError(f"the error does not say what it got: {error}") from error
        return
    except Exception as error:
        raise AssertionError(
            f"a map of shape {tuple(branch.shape)} should be refused by check_input but ended in "
            f"{type(error).__name__}: {error}"
        ) from error
    raise AssertionError(f"took a map of shape {tuple(branch.shape)} without an error")


CHECKS = (
    keeps_channels_last,
    low_precision,
    autocast,
    is_deterministic,
    takes_sequences,
    takes_volumes,
    takes_tokens,
)
