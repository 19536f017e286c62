"""What a run is: task, data, network, gate, seed and recipe; nothing else decides its weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import model_validator

from attnlab._errors import OptionError
from attnlab.data import Augmentation, DataConfig
from attnlab.lab.training.recipe import MOVED, Recipe, load_parts
from attnlab.subject.network_config import NetworkConfig
from attnlab.tasks import TaskConfig


class RunConfig(NetworkConfig):
    """One training with one seed. `recipe` may be given as the name of one of `list_recipes()`,
    or as a table that starts from one: `{name = "digits", epochs = 3}`; what that recipe says about
    augmentation and task holds unless `data` and `task` say otherwise."""

    recipe: Recipe

    @model_validator(mode="before")
    @classmethod
    def _written_short(cls, given: object) -> object:
        if not isinstance(given, Mapping):
            return given
        settings = dict(given)
        for name in ("task", "data"):
            if isinstance(settings.get(name), str):
                settings[name] = {"name": settings[name]}
        if isinstance(settings.get("recipe"), str):
            settings["recipe"] = {"name": settings["recipe"]}
        if isinstance(settings.get("recipe"), dict):
            _with_recipe(settings)
        return settings

    @property
    def label(self) -> str:
        """`digits resnet20 se seed 0`: one line for tables and logs."""
        return f"{self.data.title} {self.backbone} {self.attention} seed {self.seed}"

    def to_json(self) -> str:
        """All settings, resolved; `from_json` reads them back."""
        return self.model_dump_json(indent=1)

    @classmethod
    def from_json(cls, text: str) -> RunConfig:
        """The config that `to_json` wrote."""
        return cls.resolved(json.loads(text))

    @classmethod
    def resolved(cls, settings: Mapping[str, Any]) -> RunConfig:
        """From settings that are whole: the recipe's name is a label, and nothing is looked up."""
        parts: dict[str, Any] = {
            "task": TaskConfig(**settings["task"]),
            "data": DataConfig(**settings["data"]),
            "recipe": Recipe(**settings["recipe"]),
        }
        return cls(**{**settings, **parts})


def _with_recipe(settings: dict[str, Any]) -> None:
    """Put a named recipe's own settings under those that are given."""
    given = dict(settings["recipe"])
    for name in given:
        if name in MOVED:
            raise OptionError(
                f"Setting {name!r} is not the recipe's: it is one of {MOVED[name]}, as in "
                f"{_EXAMPLES[MOVED[name]]}."
            )
    if given.get("name") is None:
        return
    parts = load_parts(given["name"])
    base = parts.recipe.model_dump()
    if "steps" in given or (base["steps"] is not None and "epochs" not in given):
        del base["epochs"]  # counted anew
    settings["recipe"] = Recipe(**{**base, **given})
    data = settings.get("data", {})
    if isinstance(data, DataConfig):
        data = data.model_dump(exclude_unset=True)
    if isinstance(data, dict):
        own = data.get("augmentation", {})
        if isinstance(own, Augmentation):
            own = own.model_dump(exclude_unset=True)
        if isinstance(own, dict):
            settings["data"] = {**data, "augmentation": {**parts.augmentation, **own}}
    task = settings.get("task", {})
    if isinstance(task, TaskConfig):
        task = task.model_dump(exclude_unset=True)
    if isinstance(task, dict) and task.get("name", "classification") == parts.task:
        options = {**parts.task_options, **task.get("options", {})}
        settings["task"] = {**task, "options": options} if options else task


_EXAMPLES = {
    "data.augmentation": 'data = { name = "cifar10", augmentation = { flip = false } }',
    "task.options": 'task = { name = "classification", options = { label_smoothing = 0.1 } }',
}
