"""Copies, checkpoints, compilers, exports."""

from __future__ import annotations

import copy
import importlib.util
import io
import unittest
import warnings

import torch
from torch import nn

from attnlab.testing._checks_numerics import relative_error
from attnlab.testing._probe import Build, Probe, build_awake, build_seeded, features


def copies(build: Build) -> None:
    """A deep copy gives the same and shares nothing."""
    module = build_awake(build, 17).eval()
    twin = copy.deepcopy(module)
    branch = features(17)
    assert torch.equal(Probe(module)(branch), Probe(twin)(branch)), "the copy differs"
    shared = {id(p) for p in module.parameters()} & {id(p) for p in twin.parameters()}
    assert not shared, "the copy shares parameters"


def state_dict_round_trip(build: Build) -> None:
    """A checkpoint, saved and loaded with weights_only=True, restores the gate in a new one."""
    module = build_awake(build, 17).train()
    Probe(module)(features(17))
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    fresh = build_seeded(build, 17)
    fresh.load_state_dict(torch.load(file, weights_only=True))
    branch = features(17)
    same = torch.equal(Probe(fresh).eval()(branch), Probe(module).eval()(branch))
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
    same = torch.equal(Probe(filled).eval()(branch), Probe(module)(branch))
    assert same, "the materialised gate differs"


def compiles(build: Build) -> None:
    """torch.compile in one graph, forward and backward; backend aot_eager, so no C compiler."""
    outputs: list[torch.Tensor] = []
    for compiled in (False, True):
        module = Probe(build_awake(build, 17)).train()
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

    probe = Probe(build_awake(build, 17)).eval().float()
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


CHECKS = (copies, state_dict_round_trip, meta_device, compiles, exports_to_onnx)
