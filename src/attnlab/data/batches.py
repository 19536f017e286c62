"""What a data set is to a task and to the loop, and which images make which batch: the same for one
process and for many."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from attnlab._errors import InputError
from attnlab._seeds import stream
from attnlab._tokens import example_tokens


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


def batches_per_epoch(images: int, recipe: Batching) -> int:
    """Return how many batches an epoch has."""
    whole = images // recipe.batch_size
    return whole if recipe.drop_last else -(-images // recipe.batch_size)


def shuffled(
    images: int, seed: int, epoch: int, groups: Tensor | None = None, together: int = 1
) -> Tensor:
    """The numbers of all images in an order that depends on the seed and the epoch alone.

    If `groups` says in which file each image lies, the files are shuffled, and then the images of
    `together` files at a time: so many files have to be at hand at once.
    """
    numbers = stream(seed, "order", epoch)
    order = torch.randperm(images, generator=numbers)
    if groups is None:
        return order
    place = torch.randperm(int(groups.max()) + 1, generator=numbers)
    return order[torch.argsort(place[groups[order]] // together, stable=True)]


def training_chunks(
    order: Tensor,
    recipe: Batching,
    rank: int = 0,
    processes: int = 1,
    some: slice = slice(None),
) -> list[Chunk]:
    """The batches of an epoch, or some of them, if images come in this order."""
    batches = order.split(recipe.batch_size)[: batches_per_epoch(len(order), recipe)][some]
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


def check_batch_size(images: int, recipe: Batching, processes: int) -> None:
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


Targets = Literal["class", "labels", "values", "boxes", "masks", "nothing", "tokens"]
"""What is known of an image: one class, any number of labels, numbers, objects with boxes, a class
for every pixel, or nothing; of a window of text, the token after each of its tokens."""


class Batch(NamedTuple):
    """Some images and what is known of them, as a task takes them."""

    inputs: Any
    """Normalised images (N, C, H, W); with boxes, a list of images (C, H, W) of any size, pixels 0
    to 1; with masks, a list of normalised images if their sizes differ; of text, tokens (N,
    context)."""
    targets: Any
    """Classes (N), or their shares (N, classes) if images were mixed, labels (N, number) of 0 and
    1, values (N, number), for each image its `attnlab.data.boxes.Target`, masks (N, H, W), a list
    of (H, W) if sizes differ, or the next tokens (N, context)."""


@dataclass(frozen=True)
class Points:
    """What every object of data with points has."""

    number: int
    has_visibility: bool
    """Whether a third number says how well a point is seen: 0 if it is not there, 1 hidden, 2."""
    mirrored: tuple[int, ...] = ()
    """Which point takes the place of each when an image is mirrored; empty if that is not known."""
    deviations: tuple[float, ...] = ()
    """How far people differ about each point, as COCO's similarity of points takes it."""

    @property
    def shape(self) -> tuple[int, int]:
        """How many points, and how many numbers for each."""
        return self.number, 2 + self.has_visibility


@dataclass(frozen=True)
class Facts:
    """What is known of a data set before training."""

    name: str
    targets: Targets
    outputs: int
    """The number of classes, labels, values or categories of objects; of text, of all tokens that
    there can be."""
    shape: tuple[int, ...]
    """Channels, height and width of a test image, of the first if they differ; of text, the tokens
    of a window."""
    train: int
    test: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    checksum: str
    """SHA-256 of the content: see `attnlab.data.data_checksum`."""
    categories: tuple[str, ...] = ()
    """The names of the categories if there are boxes or masks."""
    notes: tuple[str, ...] = ()
    """What a reader of the results should know of the data: files that were left out, classes
    without an image. One sentence each."""
    chance: float | None = None
    """The share of test images that has the commonest class: what an answer without looking
    reaches; None if images have no class."""
    blind: float | None = None
    """Of masks, the mean overlap that an answer of the commonest class everywhere has: what is
    reached without looking."""
    random: bool = False
    """Whether the images are noise, whose labels are no network's own classes."""
    points: Points | None = None
    """What is known of the points that every object has; None if objects have none."""
    bytes_per_token: float | None = None
    """Bytes per token of the validation text, the mean; None if that is not known, or if there is
    no text."""

    def __post_init__(self) -> None:
        """Figures by category are told apart by names, so that one of two would be lost."""
        twice = [name for name, times in Counter(self.categories).items() if times > 1]
        if twice:
            raise InputError(
                f"{self.name}: the name {twice[0]!r} is that of {self.categories.count(twice[0])} "
                f"classes. Expected another name for each."
            )

    def statistics(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return the mean and the standard deviation of each channel as tensors."""
        return torch.tensor(self.mean, device=device), torch.tensor(self.std, device=device)

    def pixels(self, inputs: Tensor) -> Tensor:
        """Return normalised images (..., C, H, W) as pixels 0 to 1 again."""
        mean, std = (inputs.new_tensor(each).view(-1, 1, 1) for each in (self.mean, self.std))
        return inputs * std + mean

    def example(self, batch: int = 1) -> Tensor:
        """Inputs of this shape, the same each time: black images, or tokens in some order."""
        if self.targets != "tokens":
            return torch.zeros(batch, *self.shape)
        return example_tokens(self.outputs, self.shape[0], batch)


class Data(ABC):
    """Training and test images."""

    facts: Facts
    divided: ClassVar[bool] = True
    """Whether training and test images are different images."""
    streams: bool = False
    """Whether images are read while they are used."""

    def order(self, seed: int, epoch: int) -> Tensor:
        """The numbers of all training images as they come in an epoch."""
        return shuffled(self.facts.train, seed, epoch)

    @abstractmethod
    def training(
        self, chunks: Sequence[Chunk], seed: int, epoch: int, device: torch.device
    ) -> Iterator[Batch]:
        """Yield one batch per chunk, augmented."""

    @abstractmethod
    def testing(self, chunks: Sequence[Tensor], device: torch.device) -> Iterator[Batch]:
        """Yield one batch per chunk, as it is."""
