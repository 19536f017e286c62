"""The ids that attnlab 0.1 gave to runs, so that what it trained is found again."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from attnlab.data import MemoryData, load_data
from attnlab.data.known import SETS
from attnlab.stored import StoredRun
from attnlab.train.config import RunConfig
from attnlab.train.identity import own_classes

_DATA = ("name", "train_subset", "test_subset", "size", "stl_crop", "classes")
_FILES = ("npz", "folder", "hf")
_EMBEDDED = ("digits", "fake", *SETS)
_AUGMENTATION = ("crop", "crop_padding", "flip")


def run_id(config: RunConfig, measure: dict[str, Any]) -> str | None:
    """Of the same run in 0.1, where what was measured was part of a run; None where 0.1 could not
    have trained it."""
    settings = config.model_dump(mode="json")
    recipe, augmentation = settings.pop("recipe"), settings["data"]["augmentation"]
    if (
        config.task.name != "classification"
        or augmentation["transform"]
        or config.data.name not in (*_EMBEDDED, *_FILES)
        or recipe["optimizer_options"]
        or recipe["schedule_options"]
    ):
        return None
    for name in ("name", "optimizer_options", "schedule_options"):
        recipe.pop(name)
    smoothing = config.task.options.get("label_smoothing", 0.0)
    data = {name: settings["data"][name] for name in _DATA}
    if config.data.name in _FILES:
        data["root"] = config.data.root
    settings.pop("task")
    resolved = {
        **settings,
        "data": data,
        "recipe": {
            **recipe,
            "label_smoothing": smoothing,
            **{name: augmentation[name] for name in _AUGMENTATION},
        },
        "measure": measure,
    }
    text = json.dumps(resolved, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


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
