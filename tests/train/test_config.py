"""Settings: refusals in words, and an id that depends on what decides a run and nothing else."""

from __future__ import annotations

import pytest

from attnlab._errors import OptionError
from attnlab.train import RunConfig


def config(**settings: object) -> RunConfig:
    return RunConfig(**{"backbone": "resnet20", "recipe": "digits", **settings})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"bakbone": "resnet20"},
            "Unknown setting 'bakbone' of run. Did you mean 'backbone' or 'backbone_options'? "
            "Expected one of: data, backbone, backbone_options, attention, gate_options, where, "
            "start, seed, recipe, measure.",
        ),
        (
            {"data": {"name": "digits", "rot": "x"}},
            "Unknown setting 'rot' of data. Did you mean 'root'? Expected one of: name, root, "
            "download, train_subset, test_subset, size, stl_crop, classes.",
        ),
        (
            {"data": "cifar"},
            "Setting 'name' of data: expected 'digits', 'fake', 'cifar10', 'cifar100', 'stl10', "
            "'npz', 'folder' or 'hf' but got 'cifar'. Did you mean 'cifar10' or 'cifar100'?",
        ),
        ({"seed": -1}, "Setting 'seed' of run: expected greater than or equal to 0 but got -1."),
        (
            {"recipe": {"name": "digits", "epochs": 0}},
            "Setting 'epochs' of recipe: expected greater than 0 but got 0.",
        ),
        (
            {"recipe": {"epochs": 1, "batch_size": 2}},
            "Setting 'lr' of recipe is missing.",
        ),
        (
            {"recipe": {"name": "digits", "schedule": "multistep"}},
            "Schedule 'multistep' needs milestones, e.g. milestones = [81, 122].",
        ),
        (
            {"recipe": {"name": "digits", "milestones": [3, 2]}},
            "Expected rising milestones but got [3, 2].",
        ),
        (
            {"recipe": {"name": "digits", "epochs": 2, "warmup_epochs": 2}},
            "Expected warmup_epochs to be below epochs but got warmup_epochs = 2 and epochs = 2.",
        ),
    ],
)
def test_refusals(settings: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        config(**settings)
    assert str(caught.value) == message


def test_an_unknown_recipe_names_the_nearest() -> None:
    with pytest.raises(OptionError, match=r"^Unknown recipe 'digts'. Did you mean 'digits'\?"):
        config(recipe="digts")


def test_a_recipe_by_name_with_a_change() -> None:
    changed = config(recipe={"name": "resnet_cifar", "epochs": 3})
    assert (changed.recipe.epochs, changed.recipe.milestones) == (3, (81, 122))
    assert changed.recipe.name == "resnet_cifar"


def test_json_and_back() -> None:
    whole = config(attention="step", gate_options={"include_first": True}, where=("a", "b"), seed=3)
    assert RunConfig.from_json(whole.to_json()) == whole
    assert RunConfig.from_json(whole.to_json()).run_id == whole.run_id


def test_the_id_is_the_same_on_every_machine() -> None:
    # Not to be changed lightly: with it, finished runs of earlier versions would run again.
    recipe = {"epochs": 3, "batch_size": 8, "lr": 0.1}
    assert config(attention="se", recipe=recipe).run_id == "1b145909d1e3"


def test_the_id_ignores_labels_and_places() -> None:
    plain = config(data={"name": "cifar10"}, recipe="digits")
    elsewhere = config(data={"name": "cifar10", "root": "/data", "download": True})
    by_value = config(data="cifar10", recipe=plain.recipe.model_dump(exclude={"name"}))
    assert plain.run_id == elsewhere.run_id == by_value.run_id


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"attention": "se"},
        {"where": "stages:1"},
        {"start": "identity"},
        {"data": {"name": "npz", "root": "a.npz"}},
        {"data": {"name": "npz", "root": "b.npz"}},
        {"data": {"name": "digits", "train_subset": 100}},
        {"recipe": {"name": "digits", "lr": 0.2}},
        {"backbone": "resnet32"},
        {"backbone_options": {"a": 1}},
        {"measure": {"images": 1}},
    ],
)
def test_the_id_sees_what_decides_a_run(change: dict[str, object]) -> None:
    assert config(**change).run_id != config().run_id
    assert config(**change).run_id == config(**change).run_id


def test_two_archives_are_two_runs() -> None:
    ids = {config(data={"name": "npz", "root": f"{name}.npz"}).run_id for name in "ab"}
    assert len(ids) == 2
