"""The learning rate of each epoch, and the optimizer."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import nn

from attnlab.train.recipe import Recipe


def learning_rate(recipe: Recipe, epoch: int) -> float:
    """The learning rate of `epoch`, counted from 0: a function, so that a run that resumes, or is
    spread over processes, cannot have another."""
    rate = recipe.lr
    if recipe.schedule == "step":
        rate *= recipe.gamma ** (epoch // recipe.step_epochs)
    elif recipe.schedule == "multistep":
        rate *= recipe.gamma ** sum(epoch >= milestone for milestone in recipe.milestones)
    elif recipe.schedule == "cosine":
        half = (1 + math.cos(math.pi * epoch / recipe.epochs)) / 2
        rate = recipe.minimum_lr + (rate - recipe.minimum_lr) * half
    return rate * min(1.0, (epoch + 1) / (recipe.warmup_epochs + 1))


def build_optimizer(recipe: Recipe, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """SGD or AdamW over all parameters alike, in torch's fused form, which needs fewer passes."""
    # Fabric cannot clip between unscaling and a fused step, which unscales by itself.
    fused = not (recipe.precision == "16-mixed" and recipe.clip is not None)
    decay = recipe.weight_decay
    if recipe.optimizer == "adamw":
        return torch.optim.AdamW(parameters, recipe.lr, weight_decay=decay, fused=fused)
    return torch.optim.SGD(
        parameters, recipe.lr, momentum=recipe.momentum, weight_decay=decay, fused=fused
    )
