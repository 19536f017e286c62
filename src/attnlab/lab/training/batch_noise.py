"""Batch noise needs whole batches: what is known before training is said before training."""

from __future__ import annotations

from attnlab._errors import InputError
from attnlab.data import Facts
from attnlab.lab.training.config import RunConfig
from attnlab.surgery.noise.kinds import BatchNoise


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
