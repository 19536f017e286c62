"""Steps of a trained language model left out, and gates put into one: against what its runs say."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
import torch
from tests.programs import program
from torch.nn import functional as F

import attnlab
from attnlab.lab.training import RunConfig, train
from attnlab.results import StoredRun


@pytest.fixture(name="example", scope="module")
def fixture_example() -> ModuleType:
    return program("examples/steps_left_out.py")


def test_added_losses_are_those_of_shortened_networks(example: ModuleType, tmp_path: Path) -> None:
    config = RunConfig(
        task="language",
        data={"name": "stdlib", "options": {"context": 12}, "test_subset": 6},
        backbone="decoder",
        backbone_options={"width": 16, "depth": 2, "heads": 2, "context": 12, "hidden": 24},
        recipe={"name": "language", "steps": 2, "interval": 2, "warmup_steps": 1},
    )
    result = train(config, tmp_path, threads=1, progress=lambda _: None)
    found = example.left_out(tmp_path)
    assert found.loss == pytest.approx(result.value, rel=1e-6)
    assert found.steps == ("1.0", "1.0:1", "1.1", "1.1:1")
    subject = attnlab.open(tmp_path)
    batch = next(iter(subject.images().testing([torch.arange(6)], torch.device("cpu"))))

    def loss(network: torch.nn.Module, part: slice) -> float:
        with torch.no_grad():
            logits = network(batch.inputs[part]).flatten(0, 1)
        return F.cross_entropy(logits, batch.targets[part].flatten()).item()

    everything, odd = slice(None), slice(1, None, 2)
    for label, added in zip(found.steps[:2], found.alone[:2], strict=True):
        shorter, _ = attnlab.shorten(subject.network, [label], example=batch.inputs[:1])
        assert loss(shorter, everything) - found.loss == pytest.approx(added, abs=1e-5)
    shorter, _ = attnlab.shorten(subject.network, list(found.order[:3]), example=batch.inputs[:1])
    whole = loss(subject.network, odd)
    assert loss(shorter, odd) - whole == pytest.approx(found.curve[2], abs=1e-5)
    assert sorted(found.order) == sorted(found.steps)
    assert example.report([found, found]).count("± 0.000") == 8


@pytest.mark.parametrize("learns", [False, True])
def test_gates_that_moved(learns: bool, tmp_path: Path) -> None:
    """Steps of nothing leave gates where they were put; others do not. Added at once is the loss of
    the trained network with the first gates, put in here once more."""
    example = program("examples/gates_that_moved.py")
    step = {"lr": 0.1} if learns else {"lr": 1e-30, "momentum": 0.0, "weight_decay": 0.0}
    config = RunConfig(
        task="language",
        data={"name": "stdlib", "options": {"context": 12}, "test_subset": 6},
        backbone="decoder",
        backbone_options={"width": 16, "depth": 2, "heads": 2, "context": 12, "hidden": 24},
        attention="token",
        gate_options={"spread": 0.5},
        pretrain={"name": "language", "steps": 3, "interval": 3, "warmup_steps": 1},
        recipe={"steps": 2, "interval": 2, "batch_size": 8, **step},
    )
    result = train(config, tmp_path, threads=1, progress=lambda _: None)
    before = StoredRun(tmp_path / "source").result
    found = example.moved(tmp_path, tmp_path / "source", config)
    assert found.spread > 0.1
    if learns:
        assert found.moved > 1e-3
        assert found.added != pytest.approx(result.value - before.value, abs=1e-4)
    else:
        assert found.moved == 0
        assert found.added == pytest.approx(result.value - before.value, abs=1e-6)
        assert abs(found.added) > 1e-4
    assert example.report({"row": [found, found]}).count("± 0.000") == 4
