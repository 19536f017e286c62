"""The optimizer of a recipe."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from attnlab._errors import OptionError
from attnlab._imported import imported, is_path
from attnlab.lab.training.recipe import Recipe


def build_optimizer(recipe: Recipe, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """SGD or AdamW over all parameters alike, in torch's fused form, which needs fewer passes; or
    the user's own, given lr, weight_decay and its options."""
    # Fabric cannot clip between unscaling and a fused step, which unscales by itself.
    fused = not (recipe.precision == "16-mixed" and recipe.clip is not None)
    decay = recipe.weight_decay
    if is_path(recipe.optimizer):
        return _own(recipe, parameters)
    if recipe.optimizer == "adamw":
        return torch.optim.AdamW(parameters, recipe.lr, weight_decay=decay, fused=fused)
    return torch.optim.SGD(
        parameters, recipe.lr, momentum=recipe.momentum, weight_decay=decay, fused=fused
    )


def _own(recipe: Recipe, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    found: Any = imported("optimizer", recipe.optimizer, torch.optim.Optimizer)
    settings = {"lr": recipe.lr, "weight_decay": recipe.weight_decay, **recipe.optimizer_options}
    try:
        made: torch.optim.Optimizer = found(parameters, **settings)
    except TypeError as error:
        raise OptionError(
            f"Optimizer {recipe.optimizer!r} does not take {', '.join(settings)} ({error}). "
            f"Expected a class that is built with parameters, lr, weight_decay and its "
            f"optimizer_options."
        ) from None
    return made
