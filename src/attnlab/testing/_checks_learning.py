"""Checks of gradients and starts, and of copies, checkpoints, compilers and exports."""

from __future__ import annotations

import copy
import importlib.util
import io
import math
import unittest
import warnings

import torch
from torch import Tensor, nn

from attnlab.gates import CarryGate, Gate, InstanceEnhancementBatchNorm
from attnlab.testing._checks_numerics import relative_error
from attnlab.testing._probe import CHANNELS, Build, GateProbe, build_awake, build_seeded, features


def gradient_reaches_every_parameter(build: Build) -> None:
    """No parameter is left without a gradient, for any number of channels.

    In training or in eval mode: a bias in front of a BatchNorm has one in eval mode only.
    """
    for channels in CHANNELS:
        reached: dict[str, bool] = {}
        for training in (True, False):
            probe = GateProbe(build_awake(build, channels)).train(training)
            branch = features(channels).requires_grad_()
            weight = torch.linspace(-1, 2, branch.numel(), dtype=branch.dtype).view_as(branch)
            total = (probe(branch) * weight).sum()
            if isinstance(probe.module, CarryGate):
                total = total + probe.module.carry().sum()
            total.backward()
            for name, parameter in probe.module.named_parameters():
                gradient = 0.0 if parameter.grad is None else parameter.grad.abs().max().item()
                # Rounding leaves some 1e-16 of a gradient that is zero.
                reached[name] = reached.get(name, False) or gradient > 1e-12
        for name, found in reached.items():
            assert found, f"{channels} channels: {name} gets no gradient"


def gradient_is_right(build: Build) -> None:
    """The gradients of the input and of every parameter equal finite differences in float64."""
    for last in (False, True):
        probe = GateProbe(build_awake(build, 3)).train()
        order = torch.channels_last if last else torch.contiguous_format
        branch = features(3, (3, 4), batch=3).contiguous(memory_format=order).requires_grad_()
        names = [name for name, _ in probe.named_parameters()]

        def value(*tensors: Tensor, probe: GateProbe = probe, names: list[str] = names) -> Tensor:
            parameters = dict(zip(names, tensors[1:], strict=True))
            return torch.func.functional_call(probe, parameters, (tensors[0],))

        try:
            torch.autograd.gradcheck(value, (branch, *probe.parameters()), atol=1e-6)
        except RuntimeError as error:
            raise AssertionError(f"channels_last={last}: {error}") from error


def flat_branch_has_finite_gradient(build: Build) -> None:
    """A branch that starts at zero (zero-initialised norms) must not poison the weights."""
    for training in (True, False):
        probe = GateProbe(build_seeded(build, 17)).train(training)
        branch = torch.zeros_like(features(17)).requires_grad_()
        gate = probe(branch)
        (gate * branch + gate).sum().backward()
        tensors = {"the input": branch, **dict(probe.module.named_parameters())}
        for name, tensor in tensors.items():
            finite = tensor.grad is None or torch.isfinite(tensor.grad).all()
            assert finite, f"training={training}: the gradient of {name} is not finite"


def starts_constant(build: Build) -> None:
    """`start_constant` makes the gate the constant it returns, in both modes, and it can learn.

    A norm has `start_identity` instead: it then is the plain norm. A gate that scales the state as
    well leaves the state as it is then.
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
            gate = GateProbe(module)(branch)
            case = f"{channels} channels, training={training}"
            if isinstance(module, CarryGate):
                carry = module.carry()
                assert carry.shape == (channels,), f"{case}: a carry of shape {tuple(carry.shape)}"
                assert (carry == 1).all(), f"{case}: the state is not carried on as it is"
            error = (gate.expand_as(branch) - expected).abs().max().item()
            assert error < 1e-12, f"{case}: off by {error:.1e} from the constant"
            weight = torch.linspace(-1, 2, branch.numel(), dtype=branch.dtype).view_as(branch)
            (gate * weight).sum().backward()
            grads = [p.grad for p in module.parameters() if p.grad is not None]
            assert any(g.abs().max() > 1e-6 for g in grads), f"{case}: no gradient"


def copies(build: Build) -> None:
    """A deep copy gives the same and shares nothing."""
    module = build_awake(build, 17).eval()
    twin = copy.deepcopy(module)
    branch = features(17)
    assert torch.equal(GateProbe(module)(branch), GateProbe(twin)(branch)), "the copy differs"
    shared = {id(p) for p in module.parameters()} & {id(p) for p in twin.parameters()}
    assert not shared, "the copy shares parameters"


def state_dict_round_trip(build: Build) -> None:
    """A checkpoint, saved and loaded with weights_only=True, restores the gate in a new one."""
    module = build_awake(build, 17).train()
    GateProbe(module)(features(17))
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    fresh = build_seeded(build, 17)
    fresh.load_state_dict(torch.load(file, weights_only=True))
    branch = features(17)
    same = torch.equal(GateProbe(fresh).eval()(branch), GateProbe(module).eval()(branch))
    assert same, "the restored gate differs"


def meta_device(build: Build) -> None:
    """Built on the meta device, materialised and loaded, it is the gate that was saved."""
    module = build_awake(build, 17).eval()
    with torch.device("meta"):
        hollow = build(17)
    for name, value in hollow.state_dict().items():
        assert value.is_meta, f"{name} is on {value.device}"
    filled = hollow.to(torch.float64).to_empty(device="cpu")
    filled.load_state_dict(module.state_dict())
    branch = features(17)
    same = torch.equal(GateProbe(filled).eval()(branch), GateProbe(module)(branch))
    assert same, "the materialised gate differs"


def compiles(build: Build) -> None:
    """torch.compile in one graph, forward and backward; backend aot_eager, so no C compiler."""
    outputs: list[torch.Tensor] = []
    for compiled in (False, True):
        module = GateProbe(build_awake(build, 17)).train()
        branch = features(17).requires_grad_()
        torch.compiler.reset()
        run = torch.compile(module, fullgraph=True, backend="aot_eager") if compiled else module
        gate = run(branch)
        (gate * branch).sum().backward()
        assert branch.grad is not None
        outputs += [gate.detach(), branch.grad]
    for what, eager, fast in zip(("gate", "gradient"), outputs[:2], outputs[2:], strict=True):
        error = relative_error(fast, eager)
        assert error < 1e-12, f"the {what} differs by {error:.1e} when compiled"


def exports_to_onnx(build: Build) -> None:
    """ONNX with dynamic batch and size, run by onnxruntime on sizes not seen at export.

    Skipped without the extra `attnlab[onnx]`.
    """
    for package in ("onnx", "onnxruntime", "onnxscript"):
        if importlib.util.find_spec(package) is None:
            raise unittest.SkipTest(f"{package} is missing: pip install 'attnlab[onnx]'")
    import onnxruntime

    probe = GateProbe(build_awake(build, 17)).eval().float()
    session = onnxruntime.InferenceSession(_exported(probe), providers=["CPUExecutionProvider"])
    (name,) = (node.name for node in session.get_inputs())
    for batch, size in ((1, (5, 7)), (4, (8, 8)), (2, (3, 11))):
        branch = features(17, size, batch).float()
        (gate,) = session.run(None, {name: branch.numpy()})
        error = relative_error(torch.from_numpy(gate), probe(branch))
        assert error < 1e-5, f"batch {batch}, map {size}: onnxruntime differs by {error:.1e}"


def _exported(probe: nn.Module) -> bytes:
    dynamic = dict.fromkeys((0, 2, 3), torch.export.Dim.DYNAMIC)
    with warnings.catch_warnings():
        # The exporter's own deprecation warnings are not the gate's business.
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            probe,
            (features(17, (6, 9), 3).float(),),
            dynamo=True,
            dynamic_shapes={"branch": dynamic},
            verbose=False,
        )
    assert program is not None
    return program.model_proto.SerializeToString()


CHECKS = (
    gradient_reaches_every_parameter,
    gradient_is_right,
    flat_branch_has_finite_gradient,
    starts_constant,
    copies,
    state_dict_round_trip,
    meta_device,
    compiles,
    exports_to_onnx,
)
