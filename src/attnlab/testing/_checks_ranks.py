"""Sequences, volumes and tokens: a gate takes them, or says clearly that it does not."""

from __future__ import annotations

import torch

from attnlab._errors import InputError
from attnlab.gates import Gate
from attnlab.testing._probe import Build, Probe, build_awake, features, is_norm


def takes_sequences(build: Build) -> None:
    """(batch, channels, length), where `ranks` has 1; refused where it has not."""
    _takes(build, (9,))


def takes_volumes(build: Build) -> None:
    """(batch, channels, depth, height, width), where `ranks` has 3; refused where it has not."""
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
        probe, moved = Probe(module).eval(), tokens.transpose(1, 2)
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
    probe = Probe(module).eval()
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
        Probe(module).eval()(branch)
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


CHECKS = (takes_sequences, takes_volumes, takes_tokens)
