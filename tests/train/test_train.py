"""The loop against a bare loop written here, and what a run's directory says."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.train.small import quiet, run, small, weights
from torchvision.transforms.v2 import functional

import attnlab
from attnlab._errors import InputError
from attnlab._seeds import derive, stream
from attnlab.train import RunConfig, RunResult, load_network, train
from attnlab.train.augment import draw
from attnlab.train.network import build_network
from attnlab.train.sources import load_data


def bare_loop(config: RunConfig) -> tuple[torch.nn.Module, torch.nn.Module]:
    """The same training in plain torch, image by image; the network and its average."""
    recipe = config.recipe
    data: Any = load_data(config.data, recipe)
    images, labels = data._train.images, data._train.labels
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
        draws = draw(recipe, len(labels), 2 * recipe.crop_padding, config.seed, epoch)
        order = torch.randperm(len(labels), generator=stream(config.seed, "order", epoch))
        for batch in order.split(recipe.batch_size):
            crops = []
            for number in batch.tolist():
                wide = functional.pad(images[number], [recipe.crop_padding] * 4)
                place = int(draws.top[number]), int(draws.left[number])
                crops.append(functional.crop(wide, *place, 8, 8))
            pixels = torch.stack(crops).float()
            scale, shift = (1 / (255 * std)).view(-1, 1, 1), (-mean / std).view(-1, 1, 1)
            loss = F.cross_entropy(
                network(pixels * scale + shift),
                labels[batch],
                label_smoothing=recipe.label_smoothing,
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
    "recipe",
    [
        {},
        {"optimizer": "adamw", "lr": 1e-3, "label_smoothing": 0.1},
        {"clip": 0.5, "ema": 0.7, "channels_last": True},
    ],
)
def test_it_trains_as_a_bare_loop_does(recipe: dict[str, Any], tmp_path: Path) -> None:
    config = small(recipe=recipe)
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
    assert sum(p.numel() for p in network.parameters()) == RunResult.load(tmp_path).parameters


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
    plain = build_network(small(), 10, (3, 8, 8)).state_dict()
    gated = build_network(small(attention=attention), 10, (3, 8, 8)).state_dict()
    shared = [name for name in plain if name in gated]
    assert "fc.weight" in shared
    assert "conv1.weight" in shared
    assert all(torch.equal(plain[name], gated[name]) for name in shared)


def test_training_leaves_the_process_as_it_was(tmp_path: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    threads = torch.get_num_threads()
    run(small(1), tmp_path)
    assert torch.equal(torch.rand(3), expected)
    assert torch.get_num_threads() == threads
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_run_tells_its_own_truth(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = small(
        2, attention="asr:se", measure={"images": 20, "inference_images": 10, "every_epoch": True}
    )
    result = train(config, tmp_path, threads=1)
    assert RunResult.load(tmp_path) == result
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 2
    assert printed[1].startswith("digits resnet20 asr:se seed 0 · epoch 2/2 · lr 0.025 · loss ")
    assert RunConfig.from_json((tmp_path / "config.json").read_text()) == config
    environment = json.loads((tmp_path / "environment.json").read_text())
    assert environment["threads"] == 1
    assert environment["packages"]["torch"] == torch.__version__
    lines = [json.loads(text) for text in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2]
    assert lines[-1]["top1"] == result.top1
    assert lines[-1]["tns"] == pytest.approx(result.tns)
    assert result.best_top1 == max(line["top1"] for line in lines)
    assert len(list((tmp_path / "checkpoints").iterdir())) == 2
    assert (result.folded_top1, result.folded_parameters) == (result.top1, 272_474)
    assert result.fold_error is not None
    assert result.fold_error < 1e-10
    assert [gate.label for gate in result.gates][:4] == ["1.0", "1.1", "1.2", "2.0"]
    assert all(gate.image_spread == 0 for gate in result.gates)  # ASR's gate is constant
    # The accuracy is that of the saved weights, computed here by hand.
    data: Any = load_data(config.data, config.recipe)
    images, labels = next(data.testing([torch.arange(30)], torch.device("cpu")))
    with torch.no_grad():
        guessed = load_network(tmp_path)(images).argmax(1)
    assert (guessed == labels).double().mean().item() == pytest.approx(result.top1)


def test_a_gate_that_reads_the_image_spreads(tmp_path: Path) -> None:
    measure = {"images": 20, "inference_images": 0}
    result = run(small(1, attention="se", measure=measure), tmp_path)
    assert len(result.gates) == 9
    # Of 16 channels SE keeps one hidden unit; where its ReLU is never active the gate is constant.
    assert all(gate.image_spread > 0 for gate in result.gates[-3:])
    assert result.folded_top1 is None


def test_a_network_without_steps_has_no_tns(tmp_path: Path) -> None:
    data = {"name": "fake", "train_subset": 8, "test_subset": 4}
    measure = {"images": 4, "inference_images": 0}
    config = small(1, {"batch_size": 4}, data=data, backbone="mobilenet_v1", measure=measure)
    result = run(config, tmp_path)
    assert result.tns is None
    assert result.notes == ("The network has no residual step, so no TNS.",)


def test_a_finished_run_is_not_repeated(tmp_path: Path) -> None:
    first = run(small(1), tmp_path)
    epochs: list[Any] = []
    assert train(small(1), tmp_path, progress=epochs.append) == first
    assert epochs == []


def test_a_directory_of_another_run_is_refused(tmp_path: Path) -> None:
    run(small(1), tmp_path)
    with pytest.raises(InputError) as caught:
        run(small(1, seed=1), tmp_path)
    assert str(caught.value) == (
        f"{tmp_path} holds run {small(1).run_id} (digits resnet20 none seed 0), expected "
        f"{small(1, seed=1).run_id} (digits resnet20 none seed 1). Use another directory."
    )


def test_data_that_changed_are_refused(tmp_path: Path) -> None:
    run(small(1), tmp_path)
    (tmp_path / "result.json").unlink()
    facts = json.loads((tmp_path / "data.json").read_text())
    (tmp_path / "data.json").write_text(json.dumps({**facts, "checksum": "0" * 64}))
    with pytest.raises(InputError, match="The data changed since the run in "):
        run(small(1), tmp_path)


def test_reduced_precision_trains(tmp_path: Path) -> None:
    result = run(small(1, recipe={"precision": "bf16-mixed"}), tmp_path)
    assert result.train_loss < 4
    assert weights(tmp_path)["fc.weight"].dtype == torch.float32


def test_synchronised_norms_need_an_accelerator(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is an accelerator")
    with pytest.raises(InputError, match="sync_batchnorm needs an accelerator"):
        train(small(1, recipe={"sync_batchnorm": True}), tmp_path, progress=quiet)
