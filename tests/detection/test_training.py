"""Detectors train like every other network: resumed, over processes, folded and on a page."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tests.detection import undrawn, written
from tests.lab.training.small import quiet, run, weights
from torchvision.models.detection import _utils

import attnlab
from attnlab._errors import InputError, OptionError
from attnlab.data import load_data
from attnlab.lab.measures import measure_run, missing
from attnlab.lab.training import RunConfig, train
from attnlab.results import StoredRun
from attnlab.results.details import DetailsResult
from attnlab.subject import load_network
from attnlab.subject.building import build_network
from attnlab.tasks import build_task

FEW = {"name": "shapes", "train_subset": 16, "test_subset": 7}


def config(epochs: int = 2, **settings) -> RunConfig:
    recipe = {"name": "shapes", "epochs": epochs, **settings.pop("recipe", {})}
    given = {"task": "detection", "data": FEW, "backbone": "resnet20", **settings}
    return RunConfig(**given, recipe=recipe)


class StopError(Exception):
    pass


def test_resumed_to_the_bit(tmp_path):
    whole = config(attention="se")
    one = run(whole, tmp_path / "one")

    def stop(record):
        if record.epoch == 1:
            raise StopError

    with pytest.raises(StopError):
        train(whole, tmp_path / "two", threads=1, progress=stop)
    other = run(whole, tmp_path / "two")
    assert one.values == other.values
    first, second = weights(tmp_path / "one"), weights(tmp_path / "two")
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert one.macs is None  # how much the head computes depends on what is proposed
    history = StoredRun(tmp_path / "one").history
    assert list(history[0].loss_parts) == ["classifier", "box_reg", "objectness", "rpn_box_reg"]
    assert sum(history[0].loss_parts.values()) == pytest.approx(history[0].train_loss)


def test_what_a_run_says(tmp_path, capsys):
    train(config(1, recipe={"lr_batch": 16, "lr": 0.002}), tmp_path, threads=1)
    first, second = capsys.readouterr().out.splitlines()
    assert first == (
        "shapes resnet20 none seed 0: lr 0.002 is for batches of 16; with 8 it is 0.001"
    )
    number = r"\d+\.\d+"
    assert re.fullmatch(
        rf"shapes resnet20 none seed 0 · epoch 1/1 · lr 0\.001 · loss {number} = "
        rf"classifier {number} \+ box_reg {number} \+ objectness {number} \+ rpn_box_reg {number} "
        rf"· AP {number} % · \d+ images/s",
        second,
    )


def test_gates_with_norms_need_images(tmp_path):
    expected = (
        "batch norms inside gates see pooled features, 4 values of a channel at 4 images per "
        "process"
    )
    with pytest.raises(InputError, match=expected):
        run(config(attention="step", recipe={"batch_size": 4}), tmp_path)
    run(config(1, attention="step"), tmp_path / "eight")


def test_the_recipe_for_trained_backbones(tmp_path):
    eight = {"name": "detection_1x", "batch_size": 8}
    random = RunConfig(task="detection", data=FEW, backbone="resnet20", recipe=eight)
    assert random.task.options == {"frozen_stages": 1, "norm_eval": True}
    with pytest.raises(OptionError, match="which holds what 'resnet20' starts with"):
        run(random, tmp_path / "random")
    trained = attnlab.create("resnet20")
    with torch.no_grad():
        for module in trained.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.running_mean.normal_(0, 0.1)
    save_file(trained.state_dict(), tmp_path / "resnet20.safetensors")
    settings = {
        "backbone_options": {"weights": str(tmp_path / "resnet20.safetensors")},
        "attention": "se",
        "start": "identity",
    }
    held = RunConfig(
        task="detection",
        data=FEW,
        backbone="resnet20",
        recipe={**eight, "epochs": 1, "schedule": "constant"},
        **settings,
    )
    run(held, tmp_path / "held")
    found = weights(tmp_path / "held")
    before = trained.state_dict()
    for name in ("conv1.weight", "layer1.2.conv2.weight", "layer3.1.bn1.running_mean"):
        assert torch.equal(found[f"backbone.body.{name}"], before[name]), name
    assert not torch.equal(
        found["backbone.body.layer3.1.bn1.weight"], before["layer3.1.bn1.weight"]
    )
    # The finished run is built where the file is not, and nothing is fetched.
    (tmp_path / "resnet20.safetensors").unlink()
    load_network(tmp_path / "held")


def test_synchronised_norms_would_undo_held_ones():
    data = load_data(config().data)
    synchronised = config(
        task={"name": "detection", "options": {"norm_eval": True}},
        recipe={"sync_batchnorm": True},
    )
    task = build_task(synchronised.task, data.facts)
    expected = (
        "sync_batchnorm would turn HeldBatchNorm2d into plain batch norms, and what they do "
        "besides would be gone. Leave it out."
    )
    with pytest.raises(OptionError, match=expected):
        build_network(synchronised, task, sync_batchnorm=True)


def test_two_processes_train_as_one(tmp_path, monkeypatch):
    # RetinaNet draws no samples, and norms are held: processes differ by rounding alone.
    monkeypatch.setenv("PYTHONWARNINGS", "default")
    save_file(attnlab.create("resnet20").state_dict(), tmp_path / "resnet20.safetensors")
    whole = config(
        task={"name": "detection", "options": {"detector": "retinanet", "norm_eval": True}},
        backbone_options={"weights": str(tmp_path / "resnet20.safetensors")},
        recipe={"clip": None},
    )
    alone = run(whole, tmp_path / "one")
    together = train(whole, tmp_path / "two", threads=1, devices=2, progress=quiet)
    one, two = weights(tmp_path / "one"), weights(tmp_path / "two")
    for name in one:
        torch.testing.assert_close(one[name], two[name], rtol=1e-3, atol=1e-4)
    assert together.train_loss == pytest.approx(alone.train_loss, rel=1e-4)
    for name, value in alone.values.items():
        assert together.values[name] == (value if value is None else pytest.approx(value, abs=1e-6))


def test_two_processes_train_a_faster_rcnn_as_one(tmp_path, monkeypatch):
    # It draws anchors and proposals, each process by itself: here the first ones are taken.
    monkeypatch.setenv("PYTHONWARNINGS", "default")
    monkeypatch.setattr(_utils.BalancedPositiveNegativeSampler, "__call__", undrawn.first)
    save_file(attnlab.create("resnet20").state_dict(), tmp_path / "resnet20.safetensors")
    whole = config(
        task={"name": "detection", "options": {"norm_eval": True}},
        backbone_options={"weights": str(tmp_path / "resnet20.safetensors")},
        attention="se",
        # The first step of AdamW has the sign of the gradient, also where that is rounding.
        recipe={"clip": None, "optimizer": "sgd", "warmup_steps": 0, "lr": 0.02},
    )
    alone = train(whole, tmp_path / "one", threads=1, progress=undrawn.quiet)
    together = train(whole, tmp_path / "two", threads=1, devices=2, progress=undrawn.quiet)
    one, two = (StoredRun(tmp_path / name).history for name in ("one", "two"))
    for first, second in zip(one, two, strict=True):
        assert second.loss_parts == pytest.approx(first.loss_parts, rel=1e-6)
    for name, value in alone.values.items():
        assert together.values[name] == (value if value is None else pytest.approx(value, abs=1e-6))


def test_two_processes_evaluate_as_one(tmp_path):
    script = Path(__file__).with_name("evaluated.py")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    one, first, second = (
        eval((tmp_path / f"{name}.txt").read_text()) for name in ("one", "0", "1")
    )
    assert one == first == second
    assert 0 < one["ap"] < 1


def test_measured_folded_and_on_a_page(tmp_path):
    folder = tmp_path / "run"
    run(config(attention="asr:se"), folder)
    assert missing(folder) == ["stiffness", "stripe", "fold", "details"]
    found = measure_run(folder, threads=1)
    assert missing(folder) == []
    fold = found["fold"].found
    assert fold["float64_change"] < 1e-10
    before = StoredRun(folder).result.values
    for name, value in fold["values"].items():
        assert value == (before[name] if value is None else pytest.approx(before[name], abs=5e-5))
    assert len(found["stiffness"].found["nsi"]) == 9
    assert len(found["stripe"].found["sites"]) == 9
    details = StoredRun(folder).measured_result(DetailsResult)
    assert details is not None
    assert list(details.breakdowns[0].values) == ["disc", "square", "triangle"]
    assert list(details.breakdowns[1].values) == ["small", "medium", "large"]
    assert details.breakdowns[1].values["large"] is None
    assert len(details.pictures) == 6
    assert len(details.pictures[0].true) >= 1


@written.needs_voc100
def test_photographs(tmp_path):
    options = {
        "train": "instances.json",
        "test": "instances.json",
        "train_images": "images",
        "test_images": "images",
    }
    data = {
        "name": "coco",
        "root": str(written.VOC100),
        "options": options,
        "train_subset": 8,
        "test_subset": 4,
    }
    whole = config(
        1,
        data=data,
        task={"name": "detection", "options": {"min_size": 96, "max_size": 128}},
        attention="asr:se",
    )
    result = run(whole, tmp_path)
    assert 0 <= result.value <= 1
    found = measure_run(tmp_path, threads=1)
    assert found["fold"].found["values"] == pytest.approx(result.values, abs=5e-5)
