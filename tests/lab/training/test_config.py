"""Settings: refusals in words, and an id that depends on what decides a run and nothing else."""

from __future__ import annotations

import pytest

from attnlab._errors import OptionError
from attnlab.lab.training import RunConfig


def config(**settings: object) -> RunConfig:
    return RunConfig(**{"backbone": "resnet20", "recipe": "digits", **settings})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"bakbone": "resnet20"},
            "Unknown setting 'bakbone' of run. Did you mean 'backbone' or 'backbone_options'? "
            "Expected one of: task, data, backbone, backbone_options, attention, gate_options, "
            "where, start, place, shared, branch_scale, noise, seed, recipe, pretrain.",
        ),
        (
            {"data": {"name": "digits", "rot": "x"}},
            "Unknown setting 'rot' of data. Did you mean 'root'? Expected one of: name, options, "
            "root, download, hash_all, train_subset, test_subset, size, stl_crop, classes, "
            "augmentation.",
        ),
        (
            {"data": "cifar"},
            "Unknown data 'cifar'. Did you mean 'cifar10' or 'cifar100'? Expected one of: digits, "
            "digit-pairs, digit-angles, photos, fake, cifar10, cifar100, stl10, npz, folder, "
            "shards, hf, shapes, coco, voc, yolo, shape-masks, masks, voc-masks, hf-masks, stdlib, "
            "text, tokens.",
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
            {"recipe": {"name": "digits", "flip": True}},
            "Setting 'flip' is not the recipe's: it is one of data.augmentation, as in data = { "
            'name = "cifar10", augmentation = { flip = false } }.',
        ),
        (
            {"recipe": {"name": "digits", "label_smoothing": 0.1}},
            "Setting 'label_smoothing' is not the recipe's: it is one of task.options, as in task "
            '= { name = "classification", options = { label_smoothing = 0.1 } }.',
        ),
        (
            {"recipe": {"name": "digits", "optimizer": "adam"}},
            "Unknown optimizer 'adam'. Did you mean 'adamw'? Expected one of: sgd, adamw.",
        ),
        (
            {"recipe": {"name": "digits", "schedule": "cosin"}},
            "Unknown schedule 'cosin'. Did you mean 'cosine'? Expected one of: constant, step, "
            "multistep, cosine, wsd.",
        ),
        (
            {"recipe": {"name": "digits", "schedule_options": {"a": 1}}},
            "schedule_options are for one of your own ('module.Class'); 'cosine' has none.",
        ),
        (
            {"data": {"name": "digits", "options": {"a": 1}}},
            "options are for your own data set ('module.Class'), coco, voc, yolo, masks, "
            "voc-masks, hf-masks, stdlib, text, tokens and shards; 'digits' has none.",
        ),
        (
            {"data": {"name": "digits", "augmentation": {"transform": "cutout"}}},
            "Expected the transform to be your own class as 'module.Class' but got 'cutout'.",
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


def test_a_recipe_says_how_images_are_augmented_unless_the_data_do() -> None:
    assert config().data.augmentation.crop_padding == 1
    assert not config().data.augmentation.flip
    own = config(data={"name": "digits", "augmentation": {"flip": True}})
    assert (own.data.augmentation.flip, own.data.augmentation.crop_padding) == (True, 1)
    assert config(recipe="resnet_imagenet").data.augmentation.crop == "resized"


def test_json_and_back() -> None:
    whole = config(
        attention="step",
        gate_options={"include_first": True},
        where=("a", "b"),
        seed=3,
        task={"options": {"label_smoothing": 0.1}},
    )
    assert RunConfig.from_json(whole.to_json()) == whole
