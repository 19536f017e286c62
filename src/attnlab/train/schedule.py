"""The learning rate of each epoch."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

from attnlab._errors import InputError, check_options
from attnlab._imported import imported, is_path
from attnlab.train.recipe import Recipe


class Schedule(ABC):
    """A schedule of one's own: `factor` is multiplied by the recipe's `lr` (and its warm-up).

    It is a function of the epoch, so that a run that resumes, or is spread over processes, cannot
    have another rate.
    """

    @abstractmethod
    def factor(self, epoch: int, epochs: int) -> float:
        """Of `epoch`, counted from 0, of `epochs`."""


def learning_rate(recipe: Recipe, epoch: int) -> float:
    """The learning rate of `epoch`, counted from 0."""
    rate = recipe.lr
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
