"""The learning rate of each epoch, or of each step."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

from attnlab._errors import InputError, check_options
from attnlab._imported import imported, is_path
from attnlab.lab.training.recipe import Recipe

_FIRST = 0.001
"""Of the learning rate, at the first of `warmup_steps`."""


class Schedule(ABC):
    """A schedule of one's own: `factor` is multiplied by the recipe's `lr` (and its warm-up).

    It is a function of the epoch, so that a run that resumes, or is spread over processes, cannot
    have another rate.
    """

    @abstractmethod
    def factor(self, epoch: int, epochs: int) -> float:
        """The factor on the learning rate in `epoch`, counted from 0, of `epochs`."""


def learning_rate(recipe: Recipe, epoch: int) -> float:
    """The learning rate of `epoch`, counted from 0."""
    rate = base_rate(recipe)
    if recipe.schedule == "step":
        rate *= recipe.gamma ** (epoch // recipe.step_epochs)
    elif recipe.schedule == "multistep":
        rate *= recipe.gamma ** sum(epoch >= milestone for milestone in recipe.milestones)
    elif recipe.schedule == "cosine":
        half = (1 + math.cos(math.pi * epoch / recipe.epochs)) / 2
        rate = recipe.minimum_lr + (rate - recipe.minimum_lr) * half
    elif is_path(recipe.schedule):
        rate *= _factor(recipe, epoch)
    return rate * min(1.0, (epoch + 1) / (recipe.warmup_epochs + 1))


def rate_of_step(recipe: Recipe, step: int) -> float:
    """The learning rate of `step`, counted from 0, of a budget in steps, before the warm-up."""
    assert recipe.steps is not None
    rate, done = base_rate(recipe), step / recipe.steps
    if recipe.schedule == "cosine":
        left = (1 + math.cos(math.pi * done)) / 2
    elif recipe.schedule == "wsd":
        left = min(1.0, (recipe.steps - step) / (recipe.decay_share * recipe.steps))
    else:
        return rate
    return recipe.minimum_lr + (rate - recipe.minimum_lr) * left


def base_rate(recipe: Recipe) -> float:
    """`lr`, in proportion to the batch where the recipe says which one it is for."""
    return recipe.lr if recipe.lr_batch is None else recipe.lr * recipe.batch_size / recipe.lr_batch


def warmup(recipe: Recipe, step: int) -> float:
    """Return what the learning rate of a step, counted from 0 over all epochs, is multiplied by."""
    if step >= recipe.warmup_steps:
        return 1.0
    return _FIRST + (1 - _FIRST) * step / recipe.warmup_steps


def _factor(recipe: Recipe, epoch: int) -> float:
    found = imported("schedule", recipe.schedule, Schedule)
    options = recipe.schedule_options
    check_options(f"Schedule {recipe.schedule!r}", found.__init__, options)
    factor = found(**options).factor(epoch, recipe.epochs)
    if not isinstance(factor, int | float) or not 0 <= factor < math.inf:
        raise InputError(
            f"Schedule {recipe.schedule!r}: expected a number of at least 0 for epoch {epoch} but "
            f"got {factor!r}."
        )
    return factor
