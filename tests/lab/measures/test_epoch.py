"""What is measured after every epoch: the numbers of `attnlab stiffness`, and others by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import attnlab
from attnlab._errors import OptionError
from attnlab.data import Data, DataConfig, load_data
from attnlab.instruments.measurement import MeasureConfig
from attnlab.lab.measures.epoch import EpochMeasure
from attnlab.lab.pages.run_page import run_page
from attnlab.lab.training import RunConfig, train
from attnlab.networks.backbones.decoder import rotated
from attnlab.page.rendering import render
from attnlab.results import StoredRun
from attnlab.subject import Subject
from attnlab.surgery.insertion import attachments
from attnlab.tasks import Task, build_task

CPU = torch.device("cpu")
SMALL = {"width": 16, "depth": 2, "heads": 2, "context": 12, "hidden": 24}


def language() -> tuple[Task, Data, Tensor]:
    """The task, its data, and all of the test windows."""
    data = load_data(
        DataConfig(name="stdlib", options={"context": 12}, train_subset=8, test_subset=6)
    )
    config = RunConfig(task="language", data="stdlib", backbone="decoder", recipe="language")
    task = build_task(config.task, data.facts)
    return task, data, next(Subject("", nn.Identity(), data, task=task).inputs())


def decoder(gate: str) -> nn.Module:
    torch.manual_seed(0)
    network = attnlab.insert(attnlab.create("decoder", **SMALL), gate)[0].eval()
    for _, each in attachments(network):
        for parameter in each.parameters():
            nn.init.normal_(parameter, std=0.5)
    return network


def test_stiffness_is_that_of_attnlab_stiffness() -> None:
    task, data, windows = language()
    network = decoder("token")
    found = EpochMeasure(MeasureConfig(every_epoch=6))(network, task, data, CPU)
    wanted = attnlab.stiffness(network, [windows])
    assert found["tns"] == pytest.approx(wanted.tns, rel=1e-6)
    assert found["nsi"] == pytest.approx({s.label: s.mean for s in wanted.nsi}, rel=1e-5)


def test_norms_and_carries_by_hand() -> None:
    task, data, windows = language()
    network = decoder("lambda")
    found = EpochMeasure(MeasureConfig(every_epoch=6))(network, task, data, CPU)
    gates = [each.gate_module for _, each in attachments(network)]
    x, norms = network.tokens(windows), []
    cos, sin = network.cos, network.sin
    with torch.no_grad():
        for block, (one, two) in zip(network.blocks, (gates[:2], gates[2:]), strict=True):
            norms.append(x.flatten(1).norm(dim=1).mean().item())
            x = one.state * x + one.branch * block.attention(block.norm1(x), cos, sin)
            norms.append(x.flatten(1).norm(dim=1).mean().item())
            x = two.state * x + two.branch * block.mlp(block.norm2(x))
    assert list(found["state_norm"].values()) == pytest.approx(norms, rel=1e-5)
    assert list(found["state_norm"]) == ["1.0", "1.0:1", "1.1", "1.1:1"]
    assert list(found["carry"].values()) == pytest.approx(
        [gate.state.item() for gate in gates], rel=1e-5
    )
    assert list(found["gate_mean"].values()) == pytest.approx(
        [gate.branch.item() for gate in gates], rel=1e-5
    )
    assert set(found["gate_spread"].values()) == {0.0}


def test_gates_and_sinks_by_hand() -> None:
    task, data, windows = language()
    network = decoder("token")
    found = EpochMeasure(MeasureConfig(every_epoch=6))(network, task, data, CPU)
    gate, block = next(iter(attachments(network)))[1].gate_module, network.blocks[0]
    with torch.no_grad():
        x = network.tokens(windows)
        seen = x / x.square().mean(2, keepdim=True).add(1e-6).sqrt()
        values = 2 / (1 + torch.exp(-(seen @ gate.weight + gate.bias)))
        query, key = (
            layer(block.norm1(x)).unflatten(2, (2, -1)).transpose(1, 2)
            for layer in (block.attention.query, block.attention.key)
        )
        query, key = (rotated(each, network.cos, network.sin) for each in (query, key))
        scores = query @ key.transpose(2, 3) / 8**0.5
        hidden = torch.ones(12, 12, dtype=torch.bool).triu(1)
        shares = F.softmax(scores.masked_fill(hidden, -torch.inf), dim=-1)
    assert found["gate_mean"]["1.0"] == pytest.approx(values.mean().item(), rel=1e-5)
    assert found["gate_spread"]["1.0"] == pytest.approx(values.std(correction=0).item(), rel=1e-4)
    wanted = shares[:, :, 1:, 0].mean().item()
    assert found["sink"]["blocks.0.attention"] == pytest.approx(wanted, rel=1e-5)


def test_in_batches_it_is_as_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    task, data, _ = language()
    network = decoder("token")
    whole = EpochMeasure(MeasureConfig(every_epoch=6))(network, task, data, CPU)
    monkeypatch.setattr("attnlab.lab.measures.epoch._BATCH", 4)
    found = EpochMeasure(MeasureConfig(every_epoch=6))(network, task, data, CPU)
    assert found.keys() == whole.keys() > {"tns", "gate_mean", "gate_spread", "sink"}
    for name, value in whole.items():
        values = value if isinstance(value, dict) else {"": value}
        for place, each in values.items():
            other = found[name][place] if place else found[name]
            assert other == pytest.approx(each, rel=1e-4, abs=1e-6), (name, place)


class Wide(nn.Module):
    """A step of 80 channels."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.branch = nn.Conv2d(3, 80, 4, 4), nn.Conv2d(80, 80, 1)
        self.norm, self.head = nn.BatchNorm2d(80), nn.Linear(80, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stem(images)
        return self.head((x + self.norm(self.branch(x))).mean((2, 3)))


def test_of_wide_gates_64_channels_are_kept() -> None:
    data = load_data(DataConfig(name="fake", test_subset=4))
    config = RunConfig(data="fake", backbone="resnet20", recipe={"name": "digits", "epochs": 2})
    network, _ = attnlab.insert(Wide().eval(), "se", example=torch.randn(1, 3, 32, 32))
    task = build_task(config.task, data.facts)
    found = EpochMeasure(MeasureConfig(every_epoch=4))(network, task, data, CPU)
    (kept,) = found["gates"].values()
    images = next(Subject("", nn.Identity(), data, task=task).inputs(4))
    seen: list[Tensor] = []
    gate = next(iter(attachments(network)))[1].gate_module
    gate.register_forward_hook(lambda _module, _given, output: seen.append(output))
    with torch.no_grad():
        network(images)
    means = seen[0].flatten(1).mean(0).tolist()
    assert len(kept) == 64
    assert all(min(abs(each - mean) for mean in means) < 1e-5 for each in kept)


def test_gates_of_a_network_without_steps() -> None:
    data = load_data(DataConfig(name="fake", test_subset=4))
    config = RunConfig(data="fake", backbone="resnet20", recipe={"name": "digits", "epochs": 2})
    task = build_task(config.task, data.facts)
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    plain.append(nn.Linear(32, 10))
    network, _ = attnlab.insert(plain.eval(), "se", ["1"], example=torch.randn(1, 3, 32, 32))
    found = EpochMeasure(MeasureConfig(every_epoch=4))(network, task, data, CPU)
    assert set(found) == {"tns", "gates", "image_gates"}
    assert found["tns"] is None
    images = next(Subject("", nn.Identity(), data, task=task).inputs(4))
    seen: list[Tensor] = []
    ((name, attachment),) = attachments(network)
    attachment.gate_module.register_forward_hook(lambda _module, _given, out: seen.append(out))
    with torch.no_grad():
        network(images)
    assert found["gates"][name] == pytest.approx(seen[0].flatten(1).mean(0).tolist(), rel=1e-5)
    first = seen[0][0].flatten().tolist()
    assert found["image_gates"][name] == pytest.approx(first, rel=1e-5)


def test_networks_without_attention_or_steps() -> None:
    data = load_data(DataConfig(name="fake", test_subset=4))
    config = RunConfig(data="fake", backbone="resnet20", recipe={"name": "digits", "epochs": 2})
    task = build_task(config.task, data.facts)
    measure = EpochMeasure(MeasureConfig(every_epoch=4))
    found = measure(attnlab.create("resnet20").eval(), task, data, CPU)
    assert set(found) == {"tns", "state_norm", "nsi"}
    assert len(found["nsi"]) == 9
    plain = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10)).eval()
    plain(torch.zeros(1, 3, 32, 32))
    assert measure(plain, task, data, CPU) == {"tns": None}


def test_how_many_images() -> None:
    assert EpochMeasure(MeasureConfig(every_epoch=True)).images == 256
    assert EpochMeasure(MeasureConfig(every_epoch=True, images=3)).images == 3
    assert EpochMeasure(MeasureConfig(every_epoch=16)).images == 16
    for wrong in ({"every_epoch": True, "images": 0}, {"every_epoch": -1}):
        with pytest.raises(OptionError):
            MeasureConfig(**wrong)


def test_a_run_keeps_it_and_its_page_shows_it(tmp_path: Path) -> None:
    config = RunConfig(
        task="language",
        data={"name": "stdlib", "options": {"context": 12}, "test_subset": 6},
        backbone="decoder",
        backbone_options=SMALL,
        attention="lambda",
        recipe={"name": "language", "steps": 2, "interval": 1, "warmup_steps": 1},
    )
    measure = EpochMeasure(MeasureConfig(every_epoch=4))
    train(config, tmp_path, threads=1, progress=lambda _: None, each_epoch=measure)
    first, last = StoredRun(tmp_path).history
    assert first.state_norm is not None
    assert last.carry is not None
    assert last.numbers()["state_norm/1.1:1"] == last.state_norm["1.1:1"]
    html = render(run_page(tmp_path))
    assert "What moved inside while it trained?" in html
    assert f"{last.carry['1.1:1']:.4g}" in html
    assert "blocks.1.attention" in html
