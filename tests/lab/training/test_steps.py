"""A budget in steps: order, rates, groups, accumulation, and a run that is taken up."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning_fabric import Fabric
from safetensors.torch import load_file
from torch import nn

import attnlab
from attnlab._errors import OptionError
from attnlab.data import DataConfig, load_data
from attnlab.data.batches import shuffled, training_chunks
from attnlab.lab.training import Recipe, RunConfig, train
from attnlab.lab.training.midway import LossSums, Midway
from attnlab.lab.training.rounds import round_of
from attnlab.lab.training.schedule import rate_of_step, warmup
from attnlab.lab.training.state import build_optimizer, parameter_groups
from attnlab.tasks.task import Loss

TWENTY = load_data(DataConfig(name="fake", train_subset=20))


def recipe(**settings: Any) -> Recipe:
    return Recipe(**{"steps": 25, "interval": 4, "batch_size": 3, "lr": 0.1, **settings})


def digits(**settings: Any) -> RunConfig:
    given = {"steps": 9, "interval": 4, "batch_size": 16, "lr": 0.05, "clip": 1.0, **settings}
    data = {"name": "digits", "train_subset": 90, "test_subset": 32}
    return RunConfig(data=data, backbone="resnet20", recipe=given)  # type: ignore[arg-type]


def test_the_rounds_are_the_epochs_one_after_the_other() -> None:
    """20 images in batches of 3: seven steps an epoch, so 25 steps end in the fourth."""
    whole = [
        c.images.tolist()
        for epoch in range(4)
        for c in training_chunks(shuffled(20, 5, epoch), recipe())
    ]
    found, firsts = [], []
    for number in range(recipe().epochs):
        each = round_of(recipe(), TWENTY, 5, number)
        firsts.append(each.first)
        found += [chunk.images.tolist() for chunk in each.chunks]
        for part in each.parts:
            assert len(part.chunks) > 0
    assert found == whole[:25]
    assert firsts == [0, 4, 8, 12, 16, 20, 24]


def test_an_epoch_is_a_round_without_steps() -> None:
    plain = Recipe(epochs=2, batch_size=3, lr=0.1)
    second = round_of(plain, TWENTY, 5, 1)
    assert second.first == 7
    wanted = [c.images.tolist() for c in training_chunks(shuffled(20, 5, 1), plain)]
    assert [c.images.tolist() for c in second.chunks] == wanted


def test_the_rates_are_those_of_torchs_schedulers() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], 0.3)
    reference = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 25, eta_min=0.01)
    cosine = recipe(lr=0.3, schedule="cosine", minimum_lr=0.01)
    for step in range(25):
        assert rate_of_step(cosine, step) == pytest.approx(optimizer.param_groups[0]["lr"])
        optimizer.step()
        reference.step()


def test_warm_up_stable_decay() -> None:
    """Written out: 100 steps, the last 20 of them down in a line, to a tenth."""
    wsd = recipe(steps=100, lr=1.0, schedule="wsd", minimum_lr=0.1, warmup_steps=10)
    rates = [warmup(wsd, step) * rate_of_step(wsd, step) for step in range(100)]
    assert rates[:2] == pytest.approx([0.001, 0.001 + 0.999 / 10])
    assert set(rates[10:81]) == {1.0}
    assert rates[81] == pytest.approx(0.1 + 0.9 * 19 / 20)
    assert rates[99] == pytest.approx(0.1 + 0.9 / 20)


def test_matrices_alone_decay() -> None:
    network, _ = attnlab.insert(attnlab.create("resnet20"), "se")
    groups = parameter_groups(recipe(decay_on="matrices", weight_decay=0.1), network)
    names = {id(p): name for name, p in network.named_parameters()}
    decaying, others = ({names[id(p)] for p in group["params"]} for group in groups)
    assert decaying | others == set(names.values())
    layers = attnlab.create("resnet20").named_modules()
    matrices = {f"{n}.weight" for n, m in layers if isinstance(m, nn.Conv2d | nn.Linear)}
    assert decaying == matrices
    gates = {name for name in names.values() if "gate" in name}
    assert gates
    assert gates <= others
    optimizer = build_optimizer(recipe(decay_on="matrices", weight_decay=0.1), network)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.1, 0.0]


def test_a_run_is_taken_up_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    """Six steps an epoch; stopped after the fourth, and the first of the next two: to the bit."""

    class StopError(Exception):
        pass

    def stop(_: object) -> None:
        raise StopError

    config = digits()
    train(config, tmp_path / "whole", threads=1)
    for _ in range(2):
        with pytest.raises(StopError):
            train(config, tmp_path / "stopped", threads=1, progress=stop)
    saved = sorted(p.name[:10] for p in (tmp_path / "stopped" / "checkpoints").glob("*.pt"))
    assert saved == ["epoch-0001", "epoch-0002"]
    train(config, tmp_path / "stopped", threads=1)
    whole, stopped = (
        load_file(tmp_path / name / "model.safetensors") for name in ("whole", "stopped")
    )
    assert all(torch.equal(whole[name], stopped[name]) for name in whole)
    shutil.rmtree(tmp_path / "stopped")
    train(digits(steps=8), tmp_path / "stopped", threads=1)  # one step less is another network
    other = load_file(tmp_path / "stopped" / "model.safetensors")
    assert not all(torch.equal(whole[name], other[name]) for name in whole)


def test_parts_of_a_batch_give_its_gradient(tmp_path: Path) -> None:
    """Without batch norms, whose statistics are those of a part; also where 16 is not thirds."""
    (tmp_path / "text.txt").write_text("The quick brown fox jumps over the lazy dog. " * 60)
    found = []
    for accumulate in (1, 3):
        config = RunConfig(
            task="language",  # type: ignore[arg-type]
            data={"name": "text", "root": str(tmp_path / "text.txt"), "options": {"context": 8}},  # type: ignore[arg-type]
            backbone="decoder",
            backbone_options={"width": 16, "depth": 1, "heads": 2, "context": 8},
            recipe={  # type: ignore[arg-type]
                "steps": 2,
                "batch_size": 16,
                "accumulate": accumulate,
                "lr": 1.0,
            },
        )
        result = train(config, tmp_path / str(accumulate), threads=1)
        found.append(
            (result.train_loss, load_file(tmp_path / str(accumulate) / "model.safetensors"))
        )
    (loss, one), (other, three) = found
    assert loss == pytest.approx(other, rel=1e-6)
    assert all(torch.allclose(one[name], three[name], atol=1e-6) for name in one)


def test_the_budget_of_a_named_recipe_is_counted_anew() -> None:
    def named(**settings: object) -> Recipe:
        given = {"name": "language", **settings}
        return RunConfig(backbone="decoder", recipe=given).recipe  # type: ignore[arg-type]

    assert (named().steps, named().epochs) == (300, 3)
    assert named(steps=250).epochs == 3
    assert named(interval=50).epochs == 6
    again = RunConfig.from_json(RunConfig(backbone="decoder", recipe=named()).to_json())
    assert again.recipe == named()
    assert named().seen(10**6) == 2400
    assert math.isclose(named().betas[1], 0.95)


def test_a_budget_in_tokens_is_one_in_steps() -> None:
    """Eight windows of 128 tokens a step unless told; the last step is whole."""

    def steps(recipe: object, **data: object) -> tuple[int | None, int]:
        settings = {"name": "stdlib", **data}
        made = RunConfig(task="language", data=settings, backbone="decoder", recipe=recipe)  # type: ignore[arg-type]
        return made.recipe.steps, made.recipe.epochs

    assert steps({"name": "language", "tokens": 400 * 8 * 128}) == (400, 4)
    assert steps({"name": "language", "tokens": 400 * 8 * 128 + 1, "interval": 50}) == (401, 9)
    given = {"name": "language", "tokens": 1_000_000, "batch_size": 4}
    assert steps(given, options={"context": 50}) == (5000, 50)
    for recipe, message in (
        ({"name": "language", "tokens": 0}, "Expected tokens to be at least 1 but got 0."),
        ({"name": "language", "tokens": 9, "steps": 3}, "in tokens or in steps but got both"),
    ):
        with pytest.raises(OptionError) as error:
            steps(recipe)
        assert message in str(error.value)
    with pytest.raises(OptionError, match="A budget in tokens is for text"):
        RunConfig(data="digits", backbone="resnet20", recipe={"name": "digits", "tokens": 9})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"epochs": 3},
            "Expected a budget in steps or in epochs but got steps = 25 and epochs = 3",
        ),
        ({"schedule": "step"}, "Schedule 'step' counts epochs, and the budget is in steps."),
        ({"warmup_epochs": 1}, "warmup_epochs does not go with steps. Set warmup_steps."),
        ({"warmup_steps": 25}, "Expected warmup_steps to be below steps"),
        ({"steps": None, "epochs": 3, "schedule": "wsd"}, "Schedule 'wsd' changes with every step"),
        ({"accumulate": 4}, "Expected accumulate to be at most the batch_size, 3, but got 4."),
        ({"betas": (0.9, 1.0)}, "Expected betas from 0 to below 1"),
    ],
)
def test_wrong_budgets(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as error:
        recipe(**settings)
    assert message in str(error.value)


def test_the_sums_of_losses_are_those_over_images(tmp_path: Path) -> None:
    """Batches of two and of three images, by hand; taken up in between as if nothing had been."""
    alone = Fabric(accelerator="cpu", devices=1)

    def loss(mean: float, top1: float, dice: float) -> Loss:
        figures = {"top1": torch.tensor(top1, dtype=torch.float64)}
        return Loss(torch.tensor(mean), figures, {"dice": torch.tensor(dice).double()})

    sums = LossSums()
    sums.add(loss(1.0, 0.5, 0.25), 2)
    torch.save(sums.saved(), tmp_path / "saved")
    again = LossSums(torch.load(tmp_path / "saved"), torch.device("cpu"))
    for each in (sums, again):
        each.add(loss(2.0, 1.0, 0.5), 3)
        mean, figures, parts, images = each.means(alone)
        assert (mean, images) == (pytest.approx((2 * 1 + 3 * 2) / 5), 5)
        assert figures == {"top1": pytest.approx((2 * 0.5 + 3 * 1) / 5)}
        assert parts == {"dice": pytest.approx((2 * 0.25 + 3 * 0.5) / 5)}
    assert LossSums().saved() == {"sums": None, "names": [], "parts": [], "seen": 0}


def test_the_part_of_an_epoch_that_is_done_is_each_processes_own() -> None:
    own = [{"seen": 3}, {"seen": 4}]
    midway = Midway(2, 5, 1.5, 0.25, own[1])
    assert midway.reached == (2, 0.25, 1.5)
    saved = midway.saved(own)
    assert [Midway.read(saved, rank).own for rank in (0, 1)] == own
    assert Midway.read(saved, 1) == midway


def test_what_is_left_of_a_round() -> None:
    """Seven steps of three an epoch: the second round lies in two of them."""
    whole = round_of(recipe(), TWENTY, 5, 1)
    assert [len(part.chunks) for part in whole.parts] == [3, 1]
    for steps in range(5):
        left = whole.after(steps)
        assert [c.images.tolist() for c in left.chunks] == [
            c.images.tolist() for c in whole.chunks[steps:]
        ]
        assert [part.epoch for part in left.parts] == [[0, 1], [0, 1], [0, 1], [1], []][steps]
        assert left.first == 4
