"""Batch norms inside gates need enough values."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from attnlab._errors import InputError
from attnlab.data import Facts
from attnlab.lab.training.config import RunConfig
from attnlab.residuals.example import call, evaluating
from attnlab.surgery.insertion import attachments
from attnlab.surgery.noise.kinds import BatchNoise

LEAST = 8
"""Values that a norm must see of a channel. Of two, it sees which one is larger: ±1."""


def check_gate_norms(network: nn.Module, example: Tensor, images: int) -> None:
    """Refuse to train a network, which is run once on `example`, on `images` per process where the
    batch norms of a gate, which see pooled features, would have too few values to take statistics
    of."""
    norms = {
        f"{name}.{inner}": module
        for name, attachment in attachments(network)
        for inner, module in attachment.named_modules()
        if isinstance(module, _BatchNorm)
    }
    if not norms:
        return
    found: dict[str, int] = {}
    with ExitStack() as hooks, evaluating(network):
        for name, norm in norms.items():
            hooks.enter_context(norm.register_forward_pre_hook(_counting(name, found)))
        call(network, example.to(next(network.parameters()).device))
    few = {name: images * values for name, values in found.items() if images * values < LEAST}
    if few:
        name, values = next(iter(few.items()))
        raise InputError(
            f"{len(few)} batch norms inside gates see pooled features, {values} values of a "
            f"channel at {images} images per process (the first is {name!r}): too few to take "
            f"statistics of, expected at least {LEAST}. Use {LEAST} images per process or more, "
            f"or a gate without such a norm, for example 'se'."
        )


def _counting(name: str, found: dict[str, int]) -> Callable[..., None]:
    def hook(_module: nn.Module, inputs: tuple[Any, ...]) -> None:
        features = inputs[0]
        found[name] = features.numel() // (features.shape[0] * features.shape[1])

    return hook


def check_batch_noise(config: RunConfig, facts: Facts, processes: int) -> None:
    """Refuse batches of fewer images, per process, than the noise takes its statistics of."""
    noise = None if config.noise is None else config.noise.build()
    if not isinstance(noise, BatchNoise):
        return
    assert config.noise is not None
    during = config.noise.during or noise.default_during
    recipe = config.recipe
    smallest = {
        "training": _smallest(facts.train, recipe.batch_size, recipe.drop_last) // processes,
        "test": _smallest(facts.test // processes, recipe.test_batch_size, False),
    }
    remedy = {
        "training": "Set drop_last = true, or another batch_size",
        "test": "Set another test_batch_size",
    }
    for when, images in smallest.items():
        if during in (when, "both") and images < noise.n:
            raise InputError(
                f"The noise takes the statistics of {noise.n} images, but the smallest batch in "
                f"{when} has {images} per process. {remedy[when]}, or a smaller n."
            )


def _smallest(images: int, batch_size: int, drop_last: bool) -> int:
    rest = images % batch_size
    return rest if rest and not drop_last else min(images, batch_size)
