"""The loop against a bare loop written here, and what a run's directory says."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.lab.training.small import quiet, run, small, weights
from torch import nn
from torchvision.transforms.v2 import functional

import attnlab
from attnlab._errors import InputError
from attnlab._seeds import derive, stream
from attnlab.data import DataConfig, load_data
from attnlab.data.augment import draw
from attnlab.lab.training import RunConfig, identify, load_network, train
from attnlab.results import StoredRun
from attnlab.results.manifest import write_manifest
from attnlab.subject.building import build_network
from attnlab.tasks import build_task


def bare_loop(config: RunConfig) -> tuple[torch.nn.Module, torch.nn.Module]:
    """The same training in plain torch, image by image; the network and its average."""
    recipe, augmentation = config.recipe, config.data.augmentation
    data: Any = load_data(config.data)
    images, labels = data._train.images, data._train.targets
    mean, std = torch.tensor(data.facts.mean), torch.tensor(data.facts.std)
    torch.manual_seed(derive(config.seed, "initialisation"))
    network = attnlab.create(config.backbone, 10)
    average = copy.deepcopy(network)
    kinds = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}
    extra = {"momentum": recipe.momentum} if recipe.optimizer == "sgd" else {}
    optimizer = kinds[recipe.optimizer](
        network.parameters(), recipe.lr, weight_decay=recipe.weight_decay, **extra
    )
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, recipe.epochs)
    steps = 0
    for epoch in range(recipe.epochs):
        draws = draw(augmentation, len(labels), 2 * augmentation.crop_padding, config.seed, epoch)
        order = torch.randperm(len(labels), generator=stream(config.seed, "order", epoch))
        for batch in order.split(recipe.batch_size):
            crops = []
            for number in batch.tolist():
                wide = functional.pad(images[number], [augmentation.crop_padding] * 4)
                place = int(draws.top[number]), int(draws.left[number])
                crops.append(functional.crop(wide, *place, 8, 8))
            pixels = torch.stack(crops).float()
            scale, shift = (1 / (255 * std)).view(-1, 1, 1), (-mean / std).view(-1, 1, 1)
            loss = F.cross_entropy(
                network(pixels * scale + shift),
                labels[batch],
                label_smoothing=config.task.options.get("label_smoothing", 0.0),
            )
            optimizer.zero_grad()
            loss.backward()
            if recipe.clip is not None:
                torch.nn.utils.clip_grad_norm_(network.parameters(), recipe.clip)
            optimizer.step()
            if recipe.ema is not None:
                for mine, new in zip(average.parameters(), network.parameters(), strict=True):
                    first = steps == 0
                    mine.data = (
                        new.data.clone() if first else mine.data.lerp(new.data, 1 - recipe.ema)
                    )
            steps += 1
        cosine.step()
    return network, average


@pytest.mark.parametrize(
    ("recipe", "task"),
    [
        ({}, {}),
        ({"optimizer": "adamw", "lr": 1e-3}, {"label_smoothing": 0.1}),
        ({"clip": 0.5, "ema": 0.7, "channels_last": True}, {}),
    ],
)
def test_it_trains_as_a_bare_loop_does(
    recipe: dict[str, Any], task: dict[str, Any], tmp_path: Path
) -> None:
    config = small(recipe=recipe, task={"options": task})
    threads = torch.get_num_threads()
    run(config, tmp_path)
    torch.set_num_threads(1)
    try:
        network, average = bare_loop(config)
    finally:
        torch.set_num_threads(threads)
    found = weights(tmp_path)
    expected = average if config.recipe.ema else network
    for name, parameter in expected.named_parameters():
        torch.testing.assert_close(found[name], parameter.data, rtol=1e-4, atol=1e-6)
    assert sum(p.numel() for p in network.parameters()) == StoredRun(tmp_path).result.parameters


def test_the_same_config_gives_the_same_bits(tmp_path: Path) -> None:
    config = small(attention="se", recipe={"channels_last": True})
    torch.manual_seed(1)
    run(config, tmp_path / "a")
    torch.manual_seed(2)
    run(config, tmp_path / "b")
    a, b = weights(tmp_path / "a"), weights(tmp_path / "b")
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)
    other = small(attention="se", recipe={"channels_last": True}, seed=1)
    run(other, tmp_path / "c")
    assert not torch.equal(a["fc.weight"], weights(tmp_path / "c")["fc.weight"])


@pytest.mark.parametrize("attention", ["se", "step", "asr:se", "iebn", "dia"])
def test_runs_pair(attention: str) -> None:
    """What a gated network shares with the plain one starts equal, whatever the gate."""
    task = build_task(small().task, load_data(DataConfig()).facts)
    plain = build_network(small(), task).state_dict()
    gated = build_network(small(attention=attention), task).state_dict()
    shared = [name for name in plain if name in gated]
    assert "fc.weight" in shared
    assert "conv1.weight" in shared
    assert all(torch.equal(plain[name], gated[name]) for name in shared)


@pytest.mark.parametrize("attention", ["se", "step", "bam"])
def test_synchronised_norms_keep_the_gates(attention: str) -> None:
    """The same network, gates included; converted after the insertion it would be the plain one."""
    task = build_task(small().task, load_data(DataConfig()).facts)
    images = torch.randn(2, 3, 8, 8)
    outputs, norms = [], []
    for synchronised in (False, True):
        config = small(attention=attention)
        network = build_network(config, task, sync_batchnorm=synchronised).eval()
        with torch.no_grad():
            outputs.append(network(images))
        found = [m for m in network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
        converted = sum(isinstance(module, nn.SyncBatchNorm) for module in found)
        norms.append((len(found) - converted, converted))
    assert torch.equal(*outputs)
    plain = build_network(small(), task).eval()
    assert not torch.equal(plain(images), outputs[0])
    assert norms[1] == norms[0][::-1]


def test_training_leaves_the_process_as_it_was(tmp_path: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    threads = torch.get_num_threads()
    deterministic = torch.are_deterministic_algorithms_enabled()
    run(small(1), tmp_path)
    assert torch.equal(torch.rand(3), expected)
    assert torch.get_num_threads() == threads
    assert torch.are_deterministic_algorithms_enabled() == deterministic


def test_a_run_tells_its_own_truth(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = small(2, attention="asr:se")
    result = train(config, tmp_path, threads=1)
    stored = StoredRun(tmp_path)
    assert stored.result == result
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 2
    assert printed[1].startswith("digits resnet20 asr:se seed 0 · epoch 2/2 · lr 0.025 · loss ")
    assert RunConfig.from_json((tmp_path / "config.json").read_text()) == config
    assert stored.environment.threads == 1
    assert stored.environment.packages["torch"] == torch.__version__
    assert [record.epoch for record in stored.history] == [1, 2]
    assert stored.history[-1].test == result.values
    assert result.best_value == max(record.test["top1"] for record in stored.history)
    assert [metric.name for metric in result.metrics] == ["top1", "top5", "loss"]
    assert len(list((tmp_path / "checkpoints").iterdir())) == 2
    # The accuracy is that of the saved weights, computed here by hand.
    images, labels = next(load_data(config.data).testing([torch.arange(30)], torch.device("cpu")))
    with torch.no_grad():
        guessed = load_network(tmp_path)(images).argmax(1)
    assert (guessed == labels).double().mean().item() == pytest.approx(result.value)


def test_what_is_recorded_of_every_epoch_may_be_more(tmp_path: Path) -> None:
    def count(network: torch.nn.Module, *_: Any) -> dict[str, Any]:
        return {"training": network.training}

    train(small(2), tmp_path, threads=1, progress=quiet, each_epoch=count)
    assert [record.given()["training"] for record in StoredRun(tmp_path).history] == [True, True]


def test_a_finished_run_is_not_repeated(tmp_path: Path) -> None:
    first = run(small(1), tmp_path)
    epochs: list[Any] = []
    assert train(small(1), tmp_path, progress=epochs.append) == first
    assert epochs == []


def test_a_directory_of_another_run_is_refused(tmp_path: Path) -> None:
    run(small(1), tmp_path)
    ids = identify(small(1)).run_id, identify(small(1, seed=1, recipe={"lr": 0.1})).run_id
    with pytest.raises(InputError) as caught:
        run(small(1, seed=1, recipe={"lr": 0.1}), tmp_path)
    assert str(caught.value) == (
        f"{tmp_path} holds run {ids[0]}, expected {ids[1]} (digits resnet20 none seed 1): "
        f"recipe.lr was 0.05, is 0.1; seed was left out, is 1. Use another directory, or train it "
        f"as it was begun."
    )


def test_a_default_that_changed_is_refused(tmp_path: Path) -> None:
    """The id does not have defaults; the stored settings do."""
    run(small(1), tmp_path)
    stored = json.loads((tmp_path / "config.json").read_text())
    stored["recipe"]["momentum"] = 0.8
    stored["recipe"].pop("ema")  # a setting that came later says nothing about older runs
    (tmp_path / "config.json").write_text(json.dumps(stored))
    write_manifest(tmp_path, identify(small(1)).run_id)
    with pytest.raises(InputError) as caught:
        run(small(1), tmp_path)
    assert str(caught.value) == (
        f"{tmp_path} holds this run as another version of attnlab understood it: "
        f"recipe.momentum was 0.8, is 0.9. Use another directory, or set these to what they were."
    )


def test_reduced_precision_trains(tmp_path: Path) -> None:
    result = run(small(1, recipe={"precision": "bf16-mixed"}), tmp_path)
    assert result.train_loss < 4
    assert weights(tmp_path)["fc.weight"].dtype == torch.float32


def test_synchronised_norms_need_an_accelerator(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is an accelerator")
    with pytest.raises(InputError, match="sync_batchnorm needs an accelerator"):
        train(small(1, recipe={"sync_batchnorm": True}), tmp_path, progress=quiet)
