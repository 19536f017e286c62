"""The ids that attnlab 0.1 gave to runs, so that what it trained is found again."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from attnlab.data import MemoryData, load_data
from attnlab.data.known import SETS
from attnlab.lab.training.config import RunConfig
from attnlab.lab.training.identity import own_classes
from attnlab.results import StoredRun

# The settings that 0.1 had. Later ones must have their default, or 0.1 could not have trained it.
_RUN = (
    "backbone",
    "backbone_options",
    "attention",
    "gate_options",
    "where",
    "start",
    "seed",
)
_DATA = ("name", "train_subset", "test_subset", "size", "stl_crop", "classes")
_RECIPE = (
    "epochs",
    "batch_size",
    "test_batch_size",
    "drop_last",
    "optimizer",
    "lr",
    "momentum",
    "weight_decay",
    "schedule",
    "step_epochs",
    "milestones",
    "gamma",
    "minimum_lr",
    "warmup_epochs",
    "clip",
    "ema",
    "precision",
    "channels_last",
    "compile",
    "sync_batchnorm",
)
_AUGMENTATION = ("crop", "crop_padding", "flip")
_MEASURE = ("images", "every_epoch", "inference_images")
_FILES = ("npz", "folder", "hf")
_EMBEDDED = ("digits", "fake", *SETS)


def run_id(config: RunConfig, measure: dict[str, Any]) -> str | None:
    """Of the same run in 0.1, where what was measured was part of a run; None where 0.1 could not
    have trained it. What is measured today besides makes it no other run."""
    if not _could_train(config):
        return None
    settings = config.model_dump(mode="json")
    data = {name: settings["data"][name] for name in _DATA}
    if config.data.name in _FILES:
        data["root"] = config.data.root
    recipe = {name: settings["recipe"][name] for name in _RECIPE}
    recipe["label_smoothing"] = config.task.options.get("label_smoothing", 0.0)
    recipe |= {name: settings["data"]["augmentation"][name] for name in _AUGMENTATION}
    own = {name: settings[name] for name in _RUN}
    resolved = {**own, "data": data, "recipe": recipe}
    resolved["measure"] = {name: measure[name] for name in _MEASURE}
    text = json.dumps(resolved, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _could_train(config: RunConfig) -> bool:
    given = config.model_dump(exclude_defaults=True)
    data, recipe = given.get("data", {}), given.get("recipe", {})
    known = (
        (given, {*_RUN, "task", "data", "recipe"}),
        (data, {*_DATA, "root", "download", "augmentation"}),
        (data.get("augmentation", {}), set(_AUGMENTATION)),
        (recipe, {*_RECIPE, "name"}),
    )
    return (
        config.task.name == "classification"
        and config.data.name in (*_EMBEDDED, *_FILES)
        and all(settings.keys() <= names for settings, names in known)
    )


def is_same(config: RunConfig, stored: StoredRun) -> bool:
    """Whether a run of 0.1 with that id surely was made from what `config` would be made from.

    0.1 stored neither the source of the user's own classes nor the content of weights.
    """
    if any(True for _ in own_classes(config)) or "weights" in config.backbone_options:
        return False
    if config.data.name in _EMBEDDED:
        return True
    data = load_data(config.data)
    return isinstance(data, MemoryData) and data.pixel_checksum() == stored.data.get("checksum")
