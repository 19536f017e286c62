"""What recipes do to training images, by timm's and torchvision's own code: the formula by hand,
the same numbers each time, and nobody else's numbers moved."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.data.test_stream import make_folder
from timm.data.auto_augment import rand_augment_transform
from torch import Tensor, nn
from torchvision.transforms import v2

from attnlab._errors import OptionError
from attnlab._seeds import derive
from attnlab.data import Data, DataConfig, load_data
from attnlab.data.batches import Batch, shuffled, training_chunks
from attnlab.data.decoding import drawing_all
from attnlab.lab.training import Recipe, RunConfig, train
from attnlab.lab.training import loop as loops
from attnlab.tasks import TaskConfig, build_task

CPU = torch.device("cpu")
RECIPE = Recipe(epochs=1, batch_size=32, lr=0.1)
PLAIN = {"crop": "none", "flip": False}


def noise(**augmentation: object) -> Data:
    settings = {**PLAIN, **augmentation}
    return load_data(DataConfig(name="fake", train_subset=96, augmentation=settings))


def epoch_of(data: Data, epoch: int = 0) -> list[Batch]:
    return list(data.training(training_chunks(shuffled(96, 0, 0), RECIPE), 0, epoch, CPU))


def test_mixup_is_its_formula() -> None:
    shares = []
    for plain, mixed in zip(epoch_of(noise()), epoch_of(noise(mixup=0.8)), strict=True):
        one_hot = torch.eye(10)[plain.targets]
        rolled = one_hot.roll(1, 0)
        # Where the two classes differ, the share can be read off the targets.
        row = int((plain.targets != plain.targets.roll(1, 0)).nonzero()[0])
        share = float(mixed.targets[row, plain.targets[row]])
        shares.append(share)
        torch.testing.assert_close(mixed.targets, share * one_hot + (1 - share) * rolled)
        expected = share * plain.inputs + (1 - share) * plain.inputs.roll(1, 0)
        torch.testing.assert_close(mixed.inputs, expected)
    assert len(set(shares)) == 3
    assert all(0 < share < 1 for share in shares)


def test_cutmix_has_as_much_of_a_class_as_of_its_image() -> None:
    for plain, mixed in zip(epoch_of(noise()), epoch_of(noise(cutmix=1.0)), strict=True):
        row = int((plain.targets != plain.targets.roll(1, 0)).nonzero()[0])
        share = float(mixed.targets[row, plain.targets[row]])
        other = (mixed.inputs != plain.inputs).any(1).any(0)  # of any image of the batch
        assert float(other.double().mean()) == pytest.approx(1 - share, abs=1e-6)
        from_other = torch.where(other, plain.inputs.roll(1, 0), plain.inputs)
        assert torch.equal(mixed.inputs, from_other)


def test_erasing_changes_a_rectangle_of_some_images() -> None:
    changed = 0
    for plain, erased in zip(epoch_of(noise()), epoch_of(noise(erase=0.5)), strict=True):
        assert torch.equal(plain.targets, erased.targets)
        for before, after in zip(plain.inputs, erased.inputs, strict=True):
            rows, columns = (before != after).any(0).nonzero(as_tuple=True)
            if len(rows):
                changed += 1
                area = (rows.max() - rows.min() + 1) * (columns.max() - columns.min() + 1)
                assert len(rows) == area
    assert 30 < changed < 66  # of 96, half: 48 ± 3.7 σ


@pytest.mark.parametrize("chosen", [{"mixup": 0.8, "cutmix": 1.0, "erase": 0.25}])
def test_the_same_numbers_each_time_and_nobody_elses(chosen: dict[str, float]) -> None:
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)
    wanted = torch.rand(2).tolist(), random.random(), np.random.rand()
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)
    first = epoch_of(noise(**chosen))
    assert (torch.rand(2).tolist(), random.random(), np.random.rand()) == wanted
    again, later = epoch_of(noise(**chosen)), epoch_of(noise(**chosen), 1)
    assert all(torch.equal(a.inputs, b.inputs) for a, b in zip(first, again, strict=True))
    assert not any(torch.equal(a.inputs, b.inputs) for a, b in zip(first, later, strict=True))


def folder(root: Path, policy: str | None) -> Data:
    augmentation = {"crop": "resized", "policy": policy}
    return load_data(DataConfig(name="folder", root=str(root), size=24, augmentation=augmentation))


@pytest.mark.parametrize("policy", ["rand-m9-mstd0.5-inc1", "trivial"])
def test_a_policy_is_the_librarys(policy: str, tmp_path: Path) -> None:
    make_folder(tmp_path, train=13)
    order = torch.arange(13)
    chunks = training_chunks(order, Recipe(epochs=1, batch_size=13, lr=0.1))

    def pixels(data: Data) -> Tensor:
        batch = next(data.training(chunks, 0, 0, CPU))
        return (data.facts.pixels(batch.inputs) * 255).round().byte()

    plain, found = pixels(folder(tmp_path, None)), pixels(folder(tmp_path, policy))
    grey = tuple(round(255 * each) for each in (0.485, 0.456, 0.406))
    reference = (
        v2.TrivialAugmentWide()
        if policy == "trivial"
        else rand_augment_transform(policy, {"translate_const": 10, "img_mean": grey})
    )
    for number in range(13):
        image = Image.fromarray(plain[number].permute(1, 2, 0).numpy())
        with drawing_all(derive(derive(derive(0, "image", 0), number), "policy")):
            expected = np.asarray(reference(image))
        assert np.array_equal(found[number].permute(1, 2, 0).numpy(), expected)
    assert not torch.equal(plain, found)


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(OptionError) as caught:
        noise(policy="trivial")
    assert str(caught.value) == (
        "policy = 'trivial' acts on single images that are read while they are used, and 'fake' "
        "is not read so. It is for data 'folder' and 'shards'."
    )
    for name in ("digit-pairs", "shapes", "shape-masks", "stdlib"):
        with pytest.raises(OptionError) as caught:
            load_data(DataConfig(name=name, augmentation={**PLAIN, "mixup": 0.2}))
        assert str(caught.value) == (
            f"erase, mixup and cutmix are for images with one class, which {name!r} has not. Leave "
            f"them out."
        )
    make_folder(tmp_path)
    with pytest.raises(OptionError, match="timm has no automatic augmentation 'rnad-m9' "):
        folder(tmp_path, "rnad-m9")


def test_mixed_targets_have_the_loss_of_their_parts() -> None:
    data = noise()
    task = build_task(TaskConfig(options={"label_smoothing": 0.1}), data.facts)
    logits = torch.randn(4, 10, dtype=torch.float64)
    one, other = torch.tensor([1, 2, 3, 4]), torch.tensor([5, 2, 0, 9])
    soft = 0.7 * torch.eye(10).double()[one] + 0.3 * torch.eye(10).double()[other]
    network = nn.Identity()
    found = task.loss(network, Batch(logits, soft))
    parts = [task.loss(network, Batch(logits, each)).mean for each in (one, other)]
    torch.testing.assert_close(found.mean, 0.7 * parts[0] + 0.3 * parts[1])
    assert found.figures["top1"] == (logits.argmax(1) == one).double().mean()


@pytest.mark.slow
def test_a_run_with_all_of_it_goes_on_to_the_bit(tmp_path: Path) -> None:
    make_folder(tmp_path / "images", train=12)
    augmentation = {
        "crop": "resized",
        "policy": "rand-m9-mstd0.5-inc1",
        "erase": 0.25,
        "mixup": 0.8,
        "cutmix": 1.0,
    }
    config = RunConfig(
        data={
            "name": "folder",
            "root": str(tmp_path / "images"),
            "size": 32,
            "augmentation": augmentation,
        },
        task={"options": {"label_smoothing": 0.1}},
        backbone="timm:test_vit",
        backbone_options={"img_size": 32, "drop_path_rate": 0.3},
        recipe={
            "epochs": 2,
            "batch_size": 4,
            "lr": 1e-3,
            "optimizer": "adamw",
            "weight_decay": 0.05,
            "layer_decay": 0.7,
            "ema": 0.9,
        },
    )
    given = {"progress": lambda _: None, "threads": 1}
    train(config, tmp_path / "whole", **given)

    def stop(*_: object) -> dict[str, float]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "stopped", each_epoch=stop, save_steps=1, **given)
    train(config, tmp_path / "stopped", **given)
    weights = [(tmp_path / n / "model.safetensors").read_bytes() for n in ("whole", "stopped")]
    assert weights[0] == weights[1]


def test_layers_learn_at_their_own_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """timm's `test_vit` has six blocks between its first layer and its head."""
    states = []
    build = loops.build_state
    monkeypatch.setattr(
        loops, "build_state", lambda *given: states.append(build(*given)) or states[0]
    )
    recipe = {"epochs": 1, "batch_size": 32, "lr": 0.02, "layer_decay": 0.5, "weight_decay": 0.1}
    config = RunConfig(
        data={"name": "digits", "train_subset": 64, "test_subset": 10, "size": 32},
        backbone="timm:test_vit",
        backbone_options={"img_size": 32},
        recipe={**recipe, "optimizer": "adamw"},
    )
    train(config, tmp_path, progress=lambda _: None, threads=1)
    state = states[0]
    blocks = len(state.network.blocks)
    rates = {
        id(parameter): (group["lr"], group["weight_decay"])
        for group in state.optimizer.param_groups
        for parameter in group["params"]
    }
    named = dict(state.network.named_parameters())
    assert rates[id(named["head.weight"])] == (0.02, 0.1)
    for number in range(blocks):
        rate, decay = rates[id(named[f"blocks.{number}.attn.qkv.weight"])]
        assert rate == pytest.approx(0.02 * 0.5 ** (blocks - number))
        assert decay == 0.1
        assert rates[id(named[f"blocks.{number}.attn.qkv.bias"])][1] == 0
    assert rates[id(named["pos_embed"])] == (pytest.approx(0.02 * 0.5 ** (blocks + 1)), 0)
