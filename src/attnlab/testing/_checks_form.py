"""Checks of what a gate returns, and for which inputs."""

from __future__ import annotations

import torch
from torch import Tensor

from attnlab._errors import InputError
from attnlab.gates import CarryGate, ConstantGate
from attnlab.testing._probe import (
    CHANNELS,
    MAPS,
    Build,
    GateProbe,
    build_awake,
    build_seeded,
    features,
    is_norm,
)


def broadcasts(gate: Tensor, branch: Tensor) -> bool:
    """Return whether `gate * branch` has the shape of `branch`."""
    return gate.dim() == 4 and all(
        g in (1, b) for g, b in zip(gate.shape, branch.shape, strict=True)
    )


def any_channels_and_maps(build: Build) -> None:
    """Odd and small channel counts, maps that are not square, maps of one pixel; both modes."""
    for channels in CHANNELS:
        probe = GateProbe(build_awake(build, channels))
        for size in MAPS:
            for training in (True, False):
                branch = features(channels, size)
                gate = probe.train(training)(branch)
                case = f"{channels} channels, map {size}, training={training}"
                assert broadcasts(gate, branch), f"{case}: shape {tuple(gate.shape)}"
                assert torch.isfinite(gate).all(), f"{case}: not finite"
                assert gate.dtype == branch.dtype, f"{case}: {gate.dtype} for {branch.dtype}"


def one_input_in_eval(build: Build) -> None:
    """A batch of one in eval mode gives what it gives inside a larger batch."""
    for channels in CHANNELS:
        # Equal inputs, since the shortcut that a step gate gets is another one of the batch.
        branch = features(channels)[:1].expand(3, -1, -1, -1)
        probe = GateProbe(build_awake(build, channels)).eval()
        together = probe(branch).expand_as(branch)[:1]
        alone = probe(branch[:1]).expand_as(branch[:1])
        error = (together - alone).abs().max().item()
        assert error < 1e-12, f"{channels} channels: differs by {error:.1e} from a larger batch"


def empty_batch(build: Build) -> None:
    """No inputs give no gates, and leave the state as it was."""
    for training in (True, False):
        probe = GateProbe(build_awake(build, 17)).train(training)
        branch = features(17, batch=0).requires_grad_()
        gate = probe(branch)
        shape = (gate * branch).shape
        assert shape == branch.shape, f"training={training}: shape {tuple(shape)}"
        (gate * branch).sum().backward()
        for name, value in probe.state_dict().items():
            assert torch.isfinite(value).all(), (
                f"training={training}: {name} is not finite after it"
            )


def one_value_in_training(build: Build) -> None:
    """One input of one pixel in training works, or is refused with what to change."""
    probe = GateProbe(build_awake(build, 17)).train()
    try:
        gate = probe(features(17, (1, 1), batch=1))
    except InputError as error:
        if "batch" not in str(error) or ".eval()" not in str(error):
            raise AssertionError(f"the error does not say what to change: {error}") from error
    else:
        assert torch.isfinite(gate).all(), "not finite"


def wrong_channels_are_refused(build: Build) -> None:
    """A gate must not broadcast its parameters over an input that it was not built for."""
    for built, given in ((1, 17), (17, 1), (17, 16)):
        probe = GateProbe(build_seeded(build, built)).eval()
        try:
            probe(features(given))
        except (ValueError, RuntimeError):
            continue
        raise AssertionError(f"built for {built} channels, took {given} without an error")


def depends_on_input(build: Build) -> None:
    """Not a constant in disguise, also with fewer channels than the reduction.

    A gate of learned numbers is constant on purpose: it must depend on these instead, ASR on its
    learned vector.
    """
    for channels in CHANNELS:
        module = build_awake(build, channels)
        probe, branch = GateProbe(module).eval(), features(channels)
        before = probe(branch).expand_as(branch).clone()  # not a view of the parameters
        if isinstance(module, ConstantGate | CarryGate):
            learned = dict(module.named_parameters())
            vectors = [value for name, value in learned.items() if name.endswith("psi")]
            with torch.no_grad():
                for parameter in vectors or learned.values():
                    parameter.add_(1)
            after = probe(branch).expand_as(branch)
        else:
            after = probe(branch.roll(1, 0) * 1.5).expand_as(branch)
        change = (after - before).abs().amax(dim=(0, 2, 3))
        assert (change > 0).all(), f"{channels} channels: {int((change == 0).sum())} are constant"


def never_multiplies(build: Build) -> None:
    """The gate is returned, not its product with the branch, which is zero where the branch is."""
    module = build_awake(build, 17)
    if is_norm(module):
        return
    branch = features(17)
    branch[:, :, ::2, :] = 0
    gate = GateProbe(module).eval()(branch).expand_as(branch)
    assert not torch.equal(gate == 0, branch == 0), "the result is 0 exactly where the branch is"


def leaves_input_alone(build: Build) -> None:
    """Neither the input nor, in eval mode, the state is changed by a call."""
    probe = GateProbe(build_awake(build, 17)).eval()
    branch = features(17)
    given = branch.clone()
    state = {name: value.clone() for name, value in probe.state_dict().items()}
    probe(branch)
    assert torch.equal(branch, given), "the input was changed"
    for name, value in probe.state_dict().items():
        assert torch.equal(value, state[name]), f"{name} changed in eval mode"


CHECKS = (
    any_channels_and_maps,
    one_input_in_eval,
    empty_batch,
    one_value_in_training,
    wrong_channels_are_refused,
    depends_on_input,
    never_multiplies,
    leaves_input_alone,
)
