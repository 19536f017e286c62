"""What is examined: a network with its images, its preprocessing, its task and its origin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

import torch
from torch import nn

from attnlab._errors import InputError
from attnlab._spread import evenly_spread
from attnlab.data import Batch, Data
from attnlab.data.batches import Chunk
from attnlab.networks.checkpoint import Description
from attnlab.residuals.example import Example, example_input
from attnlab.residuals.inputs import Batches, Loaded
from attnlab.results.base import Result
from attnlab.results.provenance import Provenance
from attnlab.tasks import Task

R = TypeVar("R", bound=Result)
Part = Literal["test", "train"]
CPU = torch.device("cpu")
BATCH = 64
"""Images at a time, where nothing else is asked for."""


@dataclass(frozen=True)
class Subject:
    """A network in eval mode with all that an instrument needs to know about it.

    `attnlab.open` makes one of a name, a file, a run's folder or a module.
    """

    name: str
    """What people call it: the name, or that of the file or folder."""
    network: nn.Module
    data: Data | None = None
    """Its images, with their preprocessing, as a study would read them."""
    loader: Batches | None = None
    """Batches of the user's own, in the place of `data`."""
    task: Task | None = None
    """What the network learned; None where the labels are not known to be the network's own."""
    description: Description | None = None
    """How to build the network again; None where only its task can."""
    provenance: Provenance | None = None
    notes: tuple[str, ...] = ()
    """What was assumed when it was opened, for the notes of every result."""
    part: Part | None = None
    """Which images; what the instrument asks for if None, and most ask for test images."""
    limit: int | None = None
    """How many images, evenly spread; what the instrument asks for if None."""
    batch_size: int = BATCH
    device: torch.device = CPU

    @property
    def trained(self) -> bool:
        """Whether the weights are any but random ones; unknown weights count as trained."""
        return self.provenance is None or self.provenance.trained

    def untrained(self, seed: int = 0) -> Subject:
        """Return the same architecture with fresh weights on the same images: the control."""
        if self.description is None or self.provenance is None:
            raise InputError(f"How {self.name!r} is built is not known, so it has no control.")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = self.description.build().eval().to(self.device)
        source = replace(self.provenance, weights="", weights_checksum="")
        return replace(self, network=network, provenance=source)

    def sign(self, result: R) -> R:
        """The result of a measurement of this subject: with its provenance, and with what was
        assumed when it was opened as the first notes."""
        return replace(result, provenance=self.provenance, notes=(*self.notes, *result.notes))

    def batches(self, otherwise: int | None = None, part: Part | None = None) -> Iterator[Loaded]:
        """Batches of images with what is known of them.

        Args:
            otherwise: how many images if the subject was opened without a limit; all when None.
            part: another part than the subject was opened with. Training images come augmented,
                as in an epoch of training.
        """
        if self.loader is not None:
            yield from self.loader
            return
        yield from self.own_batches(otherwise, part)

    def own_batches(
        self, otherwise: int | None = None, part: Part | None = None
    ) -> Iterator[Batch]:
        """Yield batches of images that have targets: the subject's own, never those of a loader."""
        if self.loader is not None:
            raise InputError(
                f"{self.name!r} was given batches, and this needs images with targets of its task: "
                f"open it with data=… instead."
            )
        yield from self.read(self.chosen(otherwise, part).split(self.batch_size), part)

    def chosen(self, otherwise: int | None = None, part: Part | None = None) -> torch.Tensor:
        """The numbers of the images that are used, of all images of the part: as for `batches`."""
        facts = self.images().facts
        there = facts.train if (part or self.part) == "train" else facts.test
        # Evenly spread, because many sets are sorted by class.
        limit = self.limit if self.limit is not None else otherwise
        return torch.tensor(evenly_spread(there, limit))

    def read(self, chunks: Sequence[torch.Tensor], part: Part | None = None) -> Iterator[Batch]:
        """One batch of images per chunk of their numbers, in that order."""
        data = self.images()
        if (part or self.part or "test") == "train":
            yield from data.training([Chunk(c, 1.0) for c in chunks], 0, 0, self.device)
        else:
            yield from data.testing(chunks, self.device)

    def inputs(self, otherwise: int | None = None, part: Part | None = None) -> Iterator[Any]:
        """Yield what the network takes of each of the `batches`."""
        for batch in self.batches(otherwise, part):
            if self.task is not None and isinstance(batch, Batch):
                yield self.task.inputs(batch)
            else:
                yield batch

    def example(self, batch: int = 1) -> Example:
        """An input of the size that the network takes, the same each time: random numbers or, if
        only its task can build the network, its first images."""
        if self.description is not None:
            return self.description.example(self.network, batch)
        if self.data is None and self.loader is None:
            return example_input(self.network, batch)
        return next(self.inputs(batch))

    def number_of_batches(self, otherwise: int | None = None) -> int | None:
        """Return how many batches there are, as far as that is known before they are read."""
        if self.loader is not None:
            return len(self.loader) if isinstance(self.loader, Sized) else None
        return len(self.chosen(otherwise).split(self.batch_size))

    def learned(self) -> Task:
        """Return what the network learned; an error where the labels are not known to be its
        own."""
        if self.task is None:
            raise InputError(
                f"{self.name!r} has no images with labels of its own classes, so it has no result: "
                f"pass data with as many classes as it has outputs, such as digits or an .npz."
            )
        return self.task

    def images(self) -> Data:
        """Its data; an error if it was opened without any."""
        if self.data is None:
            raise InputError(
                f"{self.name!r} was opened without images: pass data, such as a folder of images "
                f"or digits."
            )
        return self.data
