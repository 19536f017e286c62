"""Recipes: a paper's training settings as data."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Literal

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from attnlab._errors import OptionError, unknown_name
from attnlab._strict import Strict

Precision = Literal["32-true", "16-mixed", "bf16-mixed"]


class Recipe(Strict):
    """How a network is trained."""

    name: str | None = None
    """The named recipe that these settings come from; a label."""
    epochs: PositiveInt
    batch_size: PositiveInt
    """Over all processes together."""
    test_batch_size: PositiveInt = 256
    drop_last: bool = False
    optimizer: Literal["sgd", "adamw"] = "sgd"
    lr: PositiveFloat
    momentum: NonNegativeFloat = 0.9
    """Of SGD, without Nesterov's look-ahead."""
    weight_decay: NonNegativeFloat = 0.0
    """On every parameter, as in the papers' code."""
    schedule: Literal["constant", "step", "multistep", "cosine"] = "constant"
    step_epochs: PositiveInt = 30
    """`step`: the learning rate is multiplied by `gamma` every so many epochs."""
    milestones: tuple[PositiveInt, ...] = ()
    """`multistep`: it is multiplied by `gamma` from each of these epochs on, counted from 0."""
    gamma: PositiveFloat = 0.1
    minimum_lr: NonNegativeFloat = 0.0
    """`cosine`: where it ends."""
    warmup_epochs: NonNegativeInt = 0
    """Epochs in which it rises linearly from near zero to `lr`; the schedule runs on beneath."""
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    clip: PositiveFloat | None = None
    """Largest norm of the gradient."""
    ema: float | None = Field(None, gt=0, lt=1)
    """Decay, per step, of the average of the weights that is tested and saved instead."""
    precision: Precision = "32-true"
    channels_last: bool = False
    compile: bool = False
    sync_batchnorm: bool = False
    """Batch statistics over all processes. Accelerators only: torch has none on the CPU."""
    crop: Literal["none", "padded", "resized"] = "padded"
    """`padded`: a random crop of the image padded with black; `resized`: a random part of random
    aspect, resized (image folders)."""
    crop_padding: NonNegativeInt = 4
    flip: bool = True
    """Mirror half of the training images."""

    @model_validator(mode="after")
    def _consistent(self) -> Recipe:
        if list(self.milestones) != sorted(set(self.milestones)):
            raise OptionError(f"Expected rising milestones but got {list(self.milestones)}.")
        if self.schedule == "multistep" and not self.milestones:
            raise OptionError("Schedule 'multistep' needs milestones, e.g. milestones = [81, 122].")
        if self.warmup_epochs >= self.epochs:
            raise OptionError(
                f"Expected warmup_epochs to be below epochs but got warmup_epochs = "
                f"{self.warmup_epochs} and epochs = {self.epochs}."
            )
        return self


def list_recipes() -> tuple[str, ...]:
    """The names of the recipes that come with attnlab."""
    found = (file.name for file in files("attnlab.recipes").iterdir())
    return tuple(sorted(name.removesuffix(".toml") for name in found if name.endswith(".toml")))


def load_recipe(name: str) -> Recipe:
    """One of `list_recipes()`."""
    if name not in list_recipes():
        raise unknown_name("recipe", name, list_recipes())
    text = files("attnlab.recipes").joinpath(f"{name}.toml").read_text(encoding="utf-8")
    return Recipe(name=name, **tomllib.loads(text))
