"""What a run is: task, data, network, gate, seed and recipe; nothing else decides its weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import NonNegativeInt, PositiveFloat, field_validator, model_validator

from attnlab._errors import OptionError, SelectionError
from attnlab._strict import Strict
from attnlab.data import Augmentation, DataConfig
from attnlab.lab.training.recipe import MOVED, Recipe, load_parts
from attnlab.residuals.where import measured_word, parse_where
from attnlab.surgery.noise import NoiseConfig
from attnlab.tasks import TaskConfig

Value = bool | int | float | str
"""An option of a network or a gate."""


class RunConfig(Strict):
    """One training with one seed. `recipe` may be given as the name of one of `list_recipes()`,
    or as a table that starts from one: `{name = "digits", epochs = 3}`; what that recipe says about
    augmentation and task holds unless `data` and `task` say otherwise."""

    task: TaskConfig = TaskConfig()
    data: DataConfig = DataConfig()
    backbone: str
    """A name for `attnlab.create`."""
    backbone_options: dict[str, Value] = {}
    attention: str = "none"
    """A gate for `attnlab.insert`, or `none`: the plain backbone."""
    gate_options: dict[str, Value] = {}
    where: str | tuple[str, ...] | None = None
    start: Literal["paper", "identity"] = "paper"
    place: Literal["auto", "branch", "norm"] = "branch"
    """Not `insert`'s default, which came later: a run that does not say it means what it meant."""
    shared: bool = False
    """Whether the chosen blocks of a stage have one gate in common, as in EAN."""
    branch_scale: PositiveFloat | None = None
    """The first γ of the norm in which every residual branch ends: 0.5 makes the steps of a plain
    network as short as most gates do at first, the control for them. As built when None."""
    noise: NoiseConfig | None = None
    """In every norm of the network, between normalisation and affine; see
    `attnlab.surgery.noise`."""
    seed: NonNegativeInt = 0
    recipe: Recipe

    @field_validator("where")
    @classmethod
    def _selects(cls, where: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
        try:
            measured_word(parse_where(where))
        except SelectionError as error:
            raise OptionError(str(error)) from None
        return where

    @model_validator(mode="before")
    @classmethod
    def _written_short(cls, given: Any) -> Any:
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
        return f"{self.data.name} {self.backbone} {self.attention} seed {self.seed}"

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
    settings["recipe"] = Recipe(**{**parts.recipe.model_dump(), **given})
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
