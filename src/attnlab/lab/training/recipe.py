"""Recipes: a paper's training settings as data."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Literal, NamedTuple

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from attnlab._errors import OptionError, unknown_name
from attnlab._imported import is_path
from attnlab._strict import Strict
from attnlab.results.epoch import Budget

Precision = Literal["32-true", "16-mixed", "bf16-mixed"]


OPTIMIZERS = ("sgd", "adamw")
SCHEDULES = ("constant", "step", "multistep", "cosine", "wsd")
OF_STEPS = ("constant", "cosine", "wsd")
"""The schedules that a budget in steps can have: the others count epochs."""
MOVED = {
    "label_smoothing": "task.options",
    **dict.fromkeys(("crop", "crop_padding", "flip"), "data.augmentation"),
}
"""What papers list among their training settings, and where it belongs here."""


class Recipe(Strict):
    """How a network is optimised."""

    name: str | None = None
    """The named recipe that these settings come from; a label."""
    epochs: PositiveInt
    """With a budget in steps this is not given: it is how often `interval` fits into `steps`."""
    steps: PositiveInt | None = None
    """A budget in steps of the optimizer in the place of epochs, as language models are trained.
    The learning rate then changes with every step."""
    interval: PositiveInt = 100
    """With `steps`: after this many steps the run is tested, written down and saved, also in the
    middle of an epoch; what is said of an epoch is then said of these."""
    batch_size: PositiveInt
    """Over all processes together."""
    accumulate: PositiveInt = 1
    """The number of parts into which a batch is divided, one after the other, before the optimizer
    steps: less memory for the same gradient. Batch norms see one part at a time, and a loss that is
    not a mean over images is another one; a run says so at its start."""
    test_batch_size: PositiveInt = 256
    drop_last: bool = False
    optimizer: str = "sgd"
    """`sgd`, `adamw`, or your own `torch.optim.Optimizer`, "my_module.MyOptimizer"."""
    optimizer_options: dict[str, bool | int | float | str] = {}
    """Options of your own optimizer, next to lr and weight_decay."""
    lr: PositiveFloat
    momentum: NonNegativeFloat = 0.9
    """Momentum of SGD, without Nesterov's look-ahead."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Betas of AdamW."""
    weight_decay: NonNegativeFloat = 0.0
    decay_on: Literal["all", "matrices"] = "all"
    """On which parameters the weights decay: every one, as in the papers' code, or as language
    models are trained, matrices only: no norm, no bias, no gate."""
    layer_decay: float | None = Field(None, gt=0, le=1)
    """The learning rate of each layer is that of the one after it times this, as vision
    transformers are fine-tuned; layers are timm's, and norms and biases do not decay then."""
    schedule: str = "constant"
    """`constant`, `step`, `multistep`, `cosine`, `wsd` (constant, then down in a line), or an
    your own `attnlab.lab.training.Schedule`, "my_module.MySchedule"."""
    schedule_options: dict[str, bool | int | float | str] = {}
    """Options of your own schedule."""
    step_epochs: PositiveInt = 30
    """`step`: the learning rate is multiplied by `gamma` each time this many epochs have passed."""
    milestones: tuple[PositiveInt, ...] = ()
    """`multistep`: it is multiplied by `gamma` from each of these epochs on, counted from 0."""
    gamma: PositiveFloat = 0.1
    minimum_lr: NonNegativeFloat = 0.0
    """`cosine` and `wsd`: where it ends."""
    decay_share: float = Field(0.2, gt=0, le=1)
    """`wsd`: the share of the run, at its end, in which it falls."""
    warmup_epochs: NonNegativeInt = 0
    """Epochs in which it rises linearly from near zero to `lr`; the schedule runs on beneath."""
    warmup_steps: NonNegativeInt = 0
    """Steps in which it rises linearly from a thousandth, as detectors and language models are
    trained; the schedule runs on beneath."""
    lr_batch: PositiveInt | None = None
    """The batch size that `lr` is for: with another it is scaled in proportion. None: as it is."""
    clip: PositiveFloat | None = None
    """Largest norm of the gradient."""
    ema: float | None = Field(None, gt=0, lt=1)
    """Decay, per step, of the average of the weights that is tested and saved instead."""
    precision: Precision = "32-true"
    channels_last: bool = False
    compile: bool = False
    sync_batchnorm: bool = False
    """Batch statistics over all processes. Accelerators only: torch has none on the CPU."""

    @model_validator(mode="before")
    @classmethod
    def _rounds(cls, given: object) -> object:
        """Count the rounds of a budget in steps."""
        if not isinstance(given, Mapping) or given.get("steps") is None:
            return given
        steps, interval = (
            given["steps"],
            given.get("interval", cls.model_fields["interval"].default),
        )
        if not all(type(n) is int and n > 0 for n in (steps, interval)):
            return given  # refused by the fields themselves
        rounds = -(-steps // interval)
        if given.get("epochs", rounds) != rounds:
            raise OptionError(
                f"Expected a budget in steps or in epochs but got steps = {steps} and epochs = "
                f"{given['epochs']}. Leave one out."
            )
        return {**given, "epochs": rounds}

    @model_validator(mode="after")
    def _consistent(self) -> Recipe:
        if list(self.milestones) != sorted(set(self.milestones)):
            raise OptionError(f"Expected rising milestones but got {list(self.milestones)}.")
        if self.schedule == "multistep" and not self.milestones:
            raise OptionError("Schedule 'multistep' needs milestones, e.g. milestones = [81, 122].")
        for kind, valid in (("optimizer", OPTIMIZERS), ("schedule", SCHEDULES)):
            name, options = getattr(self, kind), getattr(self, f"{kind}_options")
            if name not in valid and not is_path(name):
                raise unknown_name(kind, name, valid)
            if options and not is_path(name):
                raise OptionError(
                    f"{kind}_options are for one of your own ('module.Class'); {name!r} has none."
                )
        if not all(0 <= beta < 1 for beta in self.betas):
            raise OptionError(f"Expected betas from 0 to below 1 but got {list(self.betas)}.")
        if self.accumulate > self.batch_size:
            raise OptionError(
                f"Expected accumulate to be at most the batch_size, {self.batch_size}, but got "
                f"{self.accumulate}."
            )
        if self.steps is not None:
            self._check_steps(self.steps)
        elif self.schedule == "wsd":
            raise OptionError("Schedule 'wsd' changes with every step: give a budget in steps.")
        if self.warmup_epochs >= self.epochs:
            raise OptionError(
                f"Expected warmup_epochs to be below epochs but got warmup_epochs = "
                f"{self.warmup_epochs} and epochs = {self.epochs}."
            )
        return self

    def _check_steps(self, steps: int) -> None:
        if self.schedule not in OF_STEPS:
            raise OptionError(
                f"Schedule {self.schedule!r} counts epochs, and the budget is in steps. Expected "
                f"one of {', '.join(OF_STEPS)}."
            )
        if self.warmup_epochs:
            raise OptionError("warmup_epochs does not go with steps. Set warmup_steps.")
        if self.warmup_steps >= steps:
            raise OptionError(
                f"Expected warmup_steps to be below steps but got warmup_steps = "
                f"{self.warmup_steps} and steps = {steps}."
            )

    @property
    def budget(self) -> Budget:
        """How long it trains, as tables and pages say it."""
        return Budget(self.epochs, self.steps, self.interval)

    def seen(self, images: int) -> int:
        """Return how many images a run trains on, of a data set of this many; one counts each
        time."""
        return self.epochs * images if self.steps is None else self.steps * self.batch_size


def list_recipes() -> tuple[str, ...]:
    """The names of the recipes that come with attnlab."""
    found = (file.name for file in files("attnlab.lab.recipes").iterdir())
    return tuple(sorted(name.removesuffix(".toml") for name in found if name.endswith(".toml")))


def load_recipe(name: str) -> Recipe:
    """One of `list_recipes()`."""
    return load_parts(name).recipe


class RecipeParts(NamedTuple):
    """All that a recipe's file says: also what belongs to the data and to the task."""

    recipe: Recipe
    augmentation: dict[str, Any]
    task: str
    """For which task it is."""
    task_options: dict[str, Any]


def load_parts(name: str) -> RecipeParts:
    """The file of one of `list_recipes()`."""
    if name not in list_recipes():
        raise unknown_name("recipe", name, list_recipes())
    text = files("attnlab.lab.recipes").joinpath(f"{name}.toml").read_text(encoding="utf-8")
    table = tomllib.loads(text)
    augmentation, task = table.pop("augmentation", {}), table.pop("task", {})
    kind = task.pop("name", "classification")
    return RecipeParts(Recipe(name=name, **table), augmentation, kind, task)
