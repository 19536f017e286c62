"""Which batches belong to which round of a run.

A round is what is trained between two tests and checkpoints: an epoch, or with a budget in steps so
many of them, wherever in an epoch they begin. Which batch a step takes depends on the seed and the
number of the step alone, so a run that is taken up in the middle of an epoch goes on to the bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from attnlab.data import Batch, Data
from attnlab.data.batches import Chunk, batches_per_epoch, training_chunks
from attnlab.lab.training.recipe import Recipe


class EpochPart(NamedTuple):
    """Consecutive batches of one epoch."""

    epoch: int
    chunks: Sequence[Chunk]


class Round(NamedTuple):
    """The batches of one round, in order."""

    first: int
    """The number of its first step, from 0 over the whole run."""
    parts: tuple[EpochPart, ...]

    @property
    def chunks(self) -> list[Chunk]:
        return [chunk for part in self.parts for chunk in part.chunks]

    def after(self, steps: int) -> Round:
        """Return the same round without the first `steps` of its batches."""
        parts = []
        for part in self.parts:
            parts.append(EpochPart(part.epoch, part.chunks[steps:]))
            steps = max(steps - len(part.chunks), 0)
        return self._replace(parts=tuple(part for part in parts if part.chunks))

    def batches(self, data: Data, seed: int, device: torch.device) -> Iterator[Batch]:
        """One batch per chunk, augmented as in its epoch."""
        for part in self.parts:
            yield from data.training(part.chunks, seed, part.epoch, device)


def round_of(
    recipe: Recipe, data: Data, seed: int, number: int, rank: int = 0, processes: int = 1
) -> Round:
    """The round `number`, from 0, of training on `data`."""
    images = data.facts.train

    def epoch_of(epoch: int, some: slice = slice(None)) -> list[Chunk]:
        return training_chunks(data.order(seed, epoch), recipe, rank, processes, some)

    if recipe.steps is None:
        chunks = epoch_of(number)
        return Round(number * len(chunks), (EpochPart(number, chunks),))
    first = number * recipe.interval
    last = min(first + recipe.interval, recipe.steps)
    per_epoch = batches_per_epoch(images, recipe)
    parts = []
    for epoch in range(first // per_epoch, -(-last // per_epoch)):
        start = epoch * per_epoch
        parts.append(EpochPart(epoch, epoch_of(epoch, slice(max(first - start, 0), last - start))))
    return Round(first, tuple(parts))
