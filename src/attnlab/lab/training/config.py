"""What a run is: task, data, network, gate, seed and recipe; nothing else decides its weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import model_validator

from attnlab._checked import check_whole
from attnlab._errors import OptionError
from attnlab._seeds import derive
from attnlab.data import Augmentation, DataConfig
from attnlab.data.config import TEXT
from attnlab.data.text import CONTEXT
from attnlab.lab.training.recipe import MOVED, Recipe, load_parts
from attnlab.subject.network_config import NetworkConfig
from attnlab.tasks import TaskConfig

WITHOUT_GATES: Mapping[str, object] = {
    "attention": "none",
    "gate_options": {},
    "where": None,
    "start": "paper",
    "place": "branch",
    "shared": False,
}
"""What the plain backbone of a run has in the place of its gates' settings."""


class RunConfig(NetworkConfig):
    """One training with one seed. `recipe` may be given as the name of one of `list_recipes()`,
    or as a table that starts from one: `{name = "digits", epochs = 3}`; what that recipe says about
    augmentation and task holds unless `data` and `task` say otherwise."""

    recipe: Recipe
    pretrain: Recipe | None = None
    """The run starts from a trained network: the plain backbone, with the same seed and data, is
    trained by this recipe first, as a run of its own, and the gates are put into it."""

    @model_validator(mode="before")
    @classmethod
    def _written_short(cls, given: object) -> object:
        if not isinstance(given, Mapping):
            return given
        settings = dict(given)
        for name in ("task", "data", "recipe"):
            if isinstance(settings.get(name), str):
                settings[name] = {"name": settings[name]}
        for name in ("recipe", "pretrain"):
            if isinstance(settings.get(name), dict):
                settings[name] = _in_steps(settings[name], settings.get("data"))
        if isinstance(settings.get("recipe"), dict):
            _with_recipe(settings)
        if isinstance(before := settings.get("pretrain"), str | dict):
            settings["pretrain"] = _pretraining(before)
        return settings

    @model_validator(mode="after")
    def _starts_as_it_says(self) -> RunConfig:
        """Refuse what would change a trained network, or be overwritten by it, without a word."""
        if self.pretrain is None:
            return self
        for name, value in (
            ("branch_scale", self.branch_scale),
            ("noise", self.noise),
            (f"where = {self.where!r}", self.asks_for_measurement),
        ):
            if value is not None:
                raise OptionError(f"Setting pretrain does not go with {name}. Leave one out.")
        return self

    @property
    def pretraining(self) -> RunConfig | None:
        """The run whose trained network this one starts from; None if it starts from none."""
        if self.pretrain is None:
            return None
        changed: dict[str, Any] = {"recipe": self.pretrain, "pretrain": None, **WITHOUT_GATES}
        return self.model_copy(update=changed)

    @property
    def data_seed(self) -> int:
        """What the order of the data and dropout are drawn from. After pretraining it is another,
        or the network would see the same batches in the same order once more."""
        return self.seed if self.pretrain is None else derive(self.seed, "after pretraining")

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
        """Make a config of settings that are whole: the recipe's name is a label, and nothing is
        looked up."""
        parts: dict[str, Any] = {
            "task": TaskConfig(**settings["task"]),
            "data": DataConfig(**settings["data"]),
            "recipe": Recipe(**settings["recipe"]),
        }
        if settings.get("pretrain") is not None:
            parts["pretrain"] = Recipe(**settings["pretrain"])
        return cls(**{**settings, **parts})


def _with_recipe(settings: dict[str, Any]) -> None:
    """Put a named recipe's own settings under those that are given."""
    given = dict(settings["recipe"])
    _refuse_moved(given)
    if given.get("name") is None:
        return
    parts = load_parts(given["name"])
    settings["recipe"] = _over(parts.recipe, given)
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


def _pretraining(given: str | dict[str, Any]) -> Recipe:
    """The recipe of the training before; data and task are those of the run itself."""
    table = {"name": given} if isinstance(given, str) else given
    _refuse_moved(table)
    name = table.get("name")
    return Recipe(**table) if name is None else _over(load_parts(name).recipe, table)


def _in_steps(given: Mapping[str, Any], data: object) -> dict[str, Any]:
    """Turn a budget in tokens of text into the steps that see at least as many; other recipes stay
    as they are. So a run is the same one whichever way its budget is written."""
    settings = dict(given)
    if "tokens" not in settings:
        return settings
    tokens = settings.pop("tokens")
    check_whole("tokens", tokens, 1)
    known = data.model_dump() if isinstance(data, DataConfig) else data
    if not isinstance(known, Mapping) or known.get("name") not in TEXT:
        raise OptionError("A budget in tokens is for text. Set epochs, or steps.")
    for other in ("steps", "epochs"):
        if other in settings:
            raise OptionError(f"Expected a budget in tokens or in {other} but got both.")
    batch = settings.get("batch_size")
    if batch is None and settings.get("name") is not None:
        batch = load_parts(settings["name"]).recipe.batch_size
    context = known.get("options", {}).get("context", CONTEXT)
    if not all(type(number) is int and number > 0 for number in (batch, context)):
        return {**settings, "steps": 1}  # refused by the settings themselves
    return {**settings, "steps": -(-tokens // (batch * context))}


def _over(base: Recipe, given: Mapping[str, object]) -> Recipe:
    """The recipe `base` with the settings that are given."""
    settings = base.model_dump()
    if "steps" in given or (base.steps is not None and "epochs" not in given):
        del settings["epochs"]  # counted anew
    return Recipe(**{**settings, **given})


def _refuse_moved(given: Mapping[str, object]) -> None:
    for name in given:
        if name in MOVED:
            raise OptionError(
                f"Setting {name!r} is not the recipe's: it is one of {MOVED[name]}, as in "
                f"{_EXAMPLES[MOVED[name]]}."
            )


_EXAMPLES = {
    "data.augmentation": 'data = { name = "cifar10", augmentation = { flip = false } }',
    "task.options": 'task = { name = "classification", options = { label_smoothing = 0.1 } }',
}
