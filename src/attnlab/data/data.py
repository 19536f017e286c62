"""What a data set is to a task and to the loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from attnlab.data.batches import Chunk

Targets = Literal["class", "labels", "values", "boxes", "nothing"]
"""What is known of an image: one class, any number of labels, numbers, objects with boxes, or
nothing."""


class Batch(NamedTuple):
    """Some images and what is known of them, as a task takes them."""

    inputs: Any
    """Normalised images (N, C, H, W); with boxes, a list of images (C, H, W) of any size, pixels 0
    to 1."""
    targets: Any
    """Classes (N), labels (N, number) of 0 and 1, values (N, number), or for each image its
    `attnlab.data.boxes.Target`."""


@dataclass(frozen=True)
class Facts:
    """What is known of a data set before training."""

    name: str
    targets: Targets
    outputs: int
    """Of how many classes, labels, values or categories of objects."""
    shape: tuple[int, int, int]
    """Channels, height and width of a test image; of the first, where they differ."""
    train: int
    test: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    checksum: str
    """SHA-256 of the content: see `attnlab.data.data_checksum`."""
    categories: tuple[str, ...] = ()
    """The names of the objects, where there are boxes."""


class Data(ABC):
    """Training and test images."""

    facts: Facts
    divided: ClassVar[bool] = True
    """Whether training and test images are different images."""

    @abstractmethod
    def training(
        self, chunks: Sequence[Chunk], seed: int, epoch: int, device: torch.device
    ) -> Iterator[Batch]:
        """One batch per chunk, augmented."""

    @abstractmethod
    def testing(self, chunks: Sequence[Tensor], device: torch.device) -> Iterator[Batch]:
        """One batch per chunk, as it is."""
