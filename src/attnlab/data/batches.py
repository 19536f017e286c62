"""Which images make which batch: the same for one process and for many."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from attnlab._errors import InputError
from attnlab._seeds import stream


class Chunk(NamedTuple):
    """One process's part of a batch."""

    images: Tensor
    """Numbers of the images."""
    share: float
    """Its part of the batch times the number of processes: averaged over processes, a mean loss
    times this is the mean over the whole batch, even when it does not divide evenly."""


class Batching(Protocol):
    """What a recipe says about batches."""

    @property
    def batch_size(self) -> int: ...
    @property
    def drop_last(self) -> bool: ...


def training_chunks(
    images: int, recipe: Batching, seed: int, epoch: int, rank: int = 0, processes: int = 1
) -> list[Chunk]:
    """The batches of an epoch in an order that depends on the seed and the epoch alone."""
    order = torch.randperm(images, generator=stream(seed, "order", epoch))
    batches = list(order.split(recipe.batch_size))
    if recipe.drop_last and len(batches[-1]) < recipe.batch_size:
        batches.pop()
    parts = [batch.tensor_split(processes)[rank] for batch in batches]
    return [
        Chunk(part, len(part) * processes / len(batch))
        for part, batch in zip(parts, batches, strict=True)
    ]


def evaluation_chunks(
    images: int, batch_size: int, rank: int = 0, processes: int = 1
) -> list[Tensor]:
    """The test images of one process, in batches."""
    mine = torch.arange(images).tensor_split(processes)[rank]
    return list(mine.split(batch_size)) if len(mine) else []


def check_batches(images: int, recipe: Batching, processes: int) -> None:
    """Every process needs two images of every batch: batch norms cannot use one."""
    if recipe.drop_last and images < recipe.batch_size:
        raise InputError(
            f"Expected at least one whole batch of {recipe.batch_size} images, because drop_last "
            f"is set, but there are {images} training images. Use a smaller batch_size."
        )
    rest = images % recipe.batch_size
    smallest = recipe.batch_size if recipe.drop_last or not rest else rest
    if smallest // processes < 2:
        raise InputError(
            f"Expected at least two images per batch and process but {images} training images in "
            f"batches of {recipe.batch_size} over {processes} process"
            f"{'' if processes == 1 else 'es'} leave a batch of {smallest}. Set drop_last = true, "
            f"or another batch_size."
        )
