"""Gradients and starts."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from attnlab.gates import Gate, InstanceEnhancementBatchNorm
from attnlab.testing._probe import CHANNELS, Build, Probe, build_awake, build_seeded, features


def gradient_reaches_every_parameter(build: Build) -> None:
    """No parameter is left without a gradient, for any number of channels.

    In training or in eval mode: a bias in front of a BatchNorm has one in eval mode only.
    """
    for channels in CHANNELS:
        reached: dict[str, bool] = {}
        for training in (True, False):
            probe = Probe(build_awake(build, channels)).train(training)
            branch = features(channels).requires_grad_()
            weight = torch.linspace(-1, 2, branch.numel(), dtype=branch.dtype).view_as(branch)
            (probe(branch) * weight).sum().backward()
            for name, parameter in probe.module.named_parameters():
                gradient = 0.0 if parameter.grad is None else parameter.grad.abs().max().item()
                # Rounding leaves some 1e-16 of a gradient that is zero.
                reached[name] = reached.get(name, False) or gradient > 1e-12
        for name, found in reached.items():
            assert found, f"{channels} channels: {name} gets no gradient"


def gradient_is_right(build: Build) -> None:
    """Against finite differences in float64, for the input and every parameter."""
    for last in (False, True):
        probe = Probe(build_awake(build, 3)).train()
        order = torch.channels_last if last else torch.contiguous_format
        branch = features(3, (3, 4), batch=3).contiguous(memory_format=order).requires_grad_()
        names = [name for name, _ in probe.named_parameters()]

        def value(*tensors: Tensor, probe: Probe = probe, names: list[str] = names) -> Tensor:
            parameters = dict(zip(names, tensors[1:], strict=True))
            return torch.func.functional_call(probe, parameters, (tensors[0],))

        try:
            torch.autograd.gradcheck(value, (branch, *probe.parameters()), atol=1e-6)
        except RuntimeError as error:
            raise AssertionError(f"channels_last={last}: {error}") from error


def flat_branch_has_finite_gradient(build: Build) -> None:
    """A branch that starts at zero (zero-initialised norms) must not poison the weights."""
    for training in (True, False):
        probe = Probe(build_seeded(build, 17)).train(training)
        branch = torch.zeros_like(features(17)).requires_grad_()
        gate = probe(branch)
        (gate * branch + gate).sum().backward()
        tensors = {"the input": branch, **dict(probe.module.named_parameters())}
        for name, tensor in tensors.items():
            finite = tensor.grad is None or torch.isfinite(tensor.grad).all()
            assert finite, f"training={training}: the gradient of {name} is not finite"


def starts_constant(build: Build) -> None:
    """`start_constant` makes the gate the constant it returns, in both modes, and it can learn.

    A norm has `start_identity` instead: it then is the plain norm.
    """
    for channels in CHANNELS:
        for training in (True, False):
            module = build_awake(build, channels).train(training)
            branch = features(channels)
            if isinstance(module, InstanceEnhancementBatchNorm):
                module.start_identity()
                plain = nn.BatchNorm2d(channels, dtype=torch.float64).train(training)
                plain.load_state_dict(module.state_dict(), strict=False)
                expected = plain(branch)
            elif isinstance(module, Gate):
                constant = module.start_constant()
                assert math.isfinite(constant), f"the constant is {constant}"
                assert abs(constant) >= 0.01, f"the constant {constant} is too close to 0"
                expected = torch.full_like(branch, constant)
            else:
                raise AssertionError("expected a Gate or an InstanceEnhancementBatchNorm")
            gate = Probe(module)(branch)
            case = f"{channels} channels, training={training}"
            error = (gate.expand_as(branch) - expected).abs().max().item()
            assert error < 1e-12, f"{case}: off by {error:.1e} from the constant"
            weight = torch.linspace(-1, 2, branch.numel(), dtype=branch.dtype).view_as(branch)
            (gate * weight).sum().backward()
            grads = [p.grad for p in module.parameters() if p.grad is not None]
            assert any(g.abs().max() > 1e-6 for g in grads), f"{case}: no gradient"


CHECKS = (
    gradient_reaches_every_parameter,
    gradient_is_right,
    flat_branch_has_finite_gradient,
    starts_constant,
)
