"""The recipes against the papers' tables, typed here once more, and against torch's schedulers."""

from __future__ import annotations

from importlib.resources import files

import pytest
import torch
from torch.optim import lr_scheduler

from attnlab._errors import InputError, OptionError
from attnlab.lab.training import Recipe, list_recipes, load_recipe
from attnlab.lab.training.recipe import load_parts
from attnlab.lab.training.schedule import Schedule, learning_rate, warmup
from attnlab.lab.training.state import build_optimizer

# name: epochs, batch, optimizer, lr, weight decay, milestones (None: cosine), gamma
TABLES = {
    "resnet_cifar": (164, 128, "sgd", 0.1, 1e-4, (81, 122), 0.1),
    "resnet_stl10": (164, 16, "sgd", 0.1, 1e-4, (81, 122), 0.1),
    "stepnet_cifar": (164, 128, "sgd", 0.1, 1e-4, (81, 122), 0.1),
    "stepnet_stl10": (164, 16, "sgd", 0.1, 1e-4, (81, 122), 0.1),
    "vgg_cifar": (164, 128, "sgd", 0.1, 5e-4, (60, 120, 160), 0.2),
    "vgg_stl10": (164, 16, "sgd", 0.1, 5e-4, (60, 120, 160), 0.2),
    "repvgg_cifar": (164, 128, "sgd", 0.1, 1e-4, (130,), 0.1),
    "repvgg_stl10": (164, 16, "sgd", 0.1, 1e-4, (130,), 0.1),
    "acnet_cifar": (164, 128, "sgd", 0.1, 1e-4, None, 0.1),
    "acnet_stl10": (164, 16, "sgd", 0.1, 1e-4, None, 0.1),
    "resnet_imagenet": (100, 128, "sgd", 0.1, 1e-4, (30, 60, 90), 0.1),
    "stepnet_imagenet": (100, 128, "sgd", 0.1, 1e-4, (30, 60, 90), 0.1),
    "vit_imagenet": (300, 256, "adamw", 5e-4, 0.05, None, 0.1),
    "vit384_imagenet": (30, 64, "adamw", 5e-6, 1e-8, None, 0.1),
    "deit_imagenet": (300, 1024, "adamw", 1e-3, 0.05, None, 0.1),
    "resnet50_v2_imagenet": (600, 1024, "sgd", 0.5, 2e-5, None, 0.1),
    "detection_1x": (12, 16, "sgd", 0.02, 1e-4, (8, 11), 0.1),
}


NEWER = ("deit_imagenet", "resnet50_v2_imagenet")
"""Recipes of DeiT's and of torchvision's tables, which say more than the papers of gates."""

NUMBERS = [
    "epochs",
    "batch_size",
    "test_batch_size",
    "lr",
    "momentum",
    "weight_decay",
    "step_epochs",
    "gamma",
    "minimum_lr",
    "warmup_epochs",
    "warmup_steps",
    "lr_batch",
    "clip",
    "ema",
    "steps",
    "interval",
    "accumulate",
    "decay_share",
    "layer_decay",
]


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [True, False])
def test_true_and_false_are_not_numbers(name: str, value: bool) -> None:
    with pytest.raises(OptionError) as error:
        Recipe(**{"epochs": 2, "batch_size": 4, "lr": 0.1, name: value})
    assert str(error.value).endswith(f"number but got {value}.")


def test_true_and_false_are_taken_where_they_are_meant() -> None:
    options = {"nesterov": True, "dampening": 0.1}
    recipe = Recipe(
        epochs=2, batch_size=4, lr=1, compile=True, optimizer="a.B", optimizer_options=options
    )
    assert recipe.compile is True
    assert recipe.optimizer_options == options
    assert recipe.optimizer_options["nesterov"] is True
    with pytest.raises(OptionError) as error:
        Recipe(epochs=2, batch_size=4, lr=1, milestones=[1, True])
    assert str(error.value) == (
        "Setting 'milestones.1' of recipe: expected a whole number but got True."
    )


def test_every_recipe_is_known() -> None:
    ours = {"digits", "shapes", "shape_masks", "style", "language", "ultralytics"}
    assert set(list_recipes()) == {*TABLES, *ours}


@pytest.mark.parametrize("name", TABLES)
def test_the_papers_numbers(name: str) -> None:
    epochs, batch, optimizer, lr, decay, milestones, gamma = TABLES[name]
    recipe = load_recipe(name)
    assert (recipe.epochs, recipe.batch_size, recipe.optimizer) == (epochs, batch, optimizer)
    assert (recipe.lr, recipe.weight_decay, recipe.momentum) == (lr, decay, 0.9)
    assert recipe.schedule == ("cosine" if milestones is None else "multistep")
    assert recipe.milestones == (milestones or ())
    assert recipe.gamma == gamma
    assert recipe.warmup_epochs == (5 if name in NEWER else 0)
    assert load_parts(name).augmentation["flip"]


@pytest.mark.parametrize("name", TABLES)
def test_the_header_states_source_and_deviations(name: str) -> None:
    text = files("attnlab.lab.recipes").joinpath(f"{name}.toml").read_text(encoding="utf-8")
    header = text[: text.index("\nepochs")]
    assert all(line.startswith("#") for line in header.splitlines())
    assert "Source: " in header
    assert "Deviations and unknowns:" in header


def recipe(**settings: object) -> Recipe:
    return Recipe(**{"epochs": 12, "batch_size": 8, "lr": 0.3, **settings})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "scheduler"),
    [
        ({}, lambda o: lr_scheduler.ConstantLR(o, factor=1.0)),
        (
            {"schedule": "step", "step_epochs": 5, "gamma": 0.2},
            lambda o: lr_scheduler.StepLR(o, 5, 0.2),
        ),
        (
            {"schedule": "multistep", "milestones": [3, 7]},
            lambda o: lr_scheduler.MultiStepLR(o, [3, 7], 0.1),
        ),
        (
            {"schedule": "cosine", "minimum_lr": 0.01},
            lambda o: lr_scheduler.CosineAnnealingLR(o, 12, 0.01),
        ),
        ({"warmup_epochs": 3}, lambda o: lr_scheduler.LinearLR(o, 1 / 4, 1.0, 3)),
    ],
)
def test_the_rate_is_that_of_torchs_scheduler(settings: dict, scheduler: object) -> None:
    ours = recipe(**settings)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], 0.3)
    reference = scheduler(optimizer)  # type: ignore[operator]
    for epoch in range(12):
        expected = optimizer.param_groups[0]["lr"]
        assert learning_rate(ours, epoch) == pytest.approx(expected, rel=1e-12)
        optimizer.step()
        reference.step()


class Halving(Schedule):
    """A schedule of one's own."""

    def __init__(self, largest: str = "1") -> None:
        self.largest = float(largest)

    def factor(self, epoch: int, epochs: int) -> float:
        return self.largest * (1 - epoch / epochs)


def test_a_schedule_of_ones_own() -> None:
    """The factor is multiplied by the rate and its warm-up; zero is allowed, less is not."""
    own = recipe(schedule=f"{__name__}.Halving", lr_batch=16, warmup_epochs=1)
    assert [learning_rate(own, epoch) for epoch in (0, 6, 12)] == pytest.approx(
        [0.3 / 2 / 2, 0.3 / 2 / 2, 0]
    )
    for largest, got in (("-1", "-0.5"), ("inf", "inf"), ("nan", "nan")):
        wrong = recipe(schedule=f"{__name__}.Halving", schedule_options={"largest": largest})
        with pytest.raises(InputError) as error:
            learning_rate(wrong, 6)
        assert str(error.value) == (
            f"Schedule '{__name__}.Halving': expected a number of at least 0 for epoch 6 but got "
            f"{got}."
        )


def test_the_optimizers() -> None:
    network = torch.nn.Linear(1, 1)
    sgd = build_optimizer(recipe(weight_decay=0.1, momentum=0.8), network)
    assert isinstance(sgd, torch.optim.SGD)
    group = sgd.param_groups[0]
    assert (group["momentum"], group["weight_decay"], group["nesterov"]) == (0.8, 0.1, False)
    assert isinstance(build_optimizer(recipe(optimizer="adamw"), network), torch.optim.AdamW)


def test_the_rate_of_a_detector() -> None:
    # 0.02 for 16 images; half of that for 8; a thousandth at the first of 500 steps.
    recipe = load_recipe("detection_1x")
    assert [learning_rate(recipe, epoch) for epoch in (0, 7, 8, 10, 11)] == pytest.approx(
        [0.02, 0.02, 0.002, 0.002, 0.0002]
    )
    half = recipe.model_copy(update={"batch_size": 8})
    assert learning_rate(half, 0) == pytest.approx(0.01)
    assert [warmup(recipe, step) for step in (0, 250, 500, 9999)] == pytest.approx(
        [0.001, 0.5005, 1, 1]
    )
    parts = load_parts("detection_1x")
    assert (parts.task, parts.task_options) == (
        "detection",
        {"frozen_stages": 1, "norm_eval": True},
    )
    assert parts.augmentation == {"crop": "none", "flip": True}


def test_what_deit_and_torchvision_say_beside() -> None:
    deit, newer = (load_parts(name) for name in NEWER)
    said = {"crop": "resized", "flip": True, "mixup": 0.8, "cutmix": 1.0, "erase": 0.25}
    assert deit.augmentation == {**said, "policy": "rand-m9-mstd0.5-inc1"}
    assert (deit.recipe.minimum_lr, deit.recipe.decay_on) == (1e-5, "matrices")
    said = {"crop": "resized", "flip": True, "mixup": 0.2, "cutmix": 1.0, "erase": 0.1}
    assert newer.augmentation == {**said, "policy": "trivial"}
    # references/classification: the average moves by (1 - 0.99998) · batch · 32 / epochs each 32.
    moved = (1 - 0.99998) * 1024 * 32 / 600
    assert newer.recipe.ema == pytest.approx((1 - moved) ** (1 / 32), abs=1e-6)
    assert deit.task_options == newer.task_options == {"label_smoothing": 0.1}
