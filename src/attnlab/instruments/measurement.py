"""What a measurement is, and what it is made on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from torch import nn

from attnlab._errors import InputError
from attnlab.data import Batch, Data
from attnlab.data.batches import Chunk
from attnlab.instruments.config import MeasureConfig
from attnlab.tasks import Task


@dataclass(frozen=True)
class Subject:
    """A trained network in eval mode, with what it was trained for."""

    network: nn.Module
    task: Task
    data: Data
    batch_size: int
    device: torch.device

    def inputs(self, number: int, batch_size: int | None = None) -> Iterator[Any]:
        """Inputs of test images, evenly spread."""
        for batch in self.batches(number, batch_size):
            yield self.task.inputs(batch)

    def batches(self, number: int, batch_size: int | None = None) -> Iterator[Batch]:
        """Test images, evenly spread, because many sets are sorted by class."""
        test = self.data.facts.test
        chosen = torch.linspace(0, test - 1, min(number, test)).round().long()
        chunks = list(chosen.split(batch_size or self.batch_size))
        return self.data.testing(chunks, self.device)

    def training(self, number: int, batch_size: int | None = None) -> Iterator[Batch]:
        """Training images, evenly spread, augmented as in an epoch of training: what may be chosen
        on, where test images may not."""
        train = self.data.facts.train
        chosen = torch.linspace(0, train - 1, min(number, train)).round().long()
        parts = chosen.split(batch_size or self.batch_size)
        return self.data.training([Chunk(part, 1.0) for part in parts], 0, 0, self.device)


def same_result(subjects: dict[str, Subject]) -> None:
    """Refuse networks whose results are not the same metric."""
    names = {name: subject.task.metrics[0].label for name, subject in subjects.items()}
    if len(set(names.values())) > 1:
        listed = ", ".join(f"{name!r} has {label}" for name, label in names.items())
        raise InputError(f"Expected networks with one kind of result but {listed}.")


class Finding(NamedTuple):
    """What was found, as JSON, or None where the measurement does not apply; and remarks."""

    found: dict[str, Any] | None
    notes: tuple[str, ...] = ()


class Measurement(ABC):
    """Its result is measured/NAME.json of the run's directory."""

    name: ClassVar[str]

    def applies(self, folder: Path) -> bool:
        """Whether it makes sense for the run in `folder`; the network need not be looked at."""
        del folder
        return True

    @abstractmethod
    def settings(self, config: MeasureConfig) -> dict[str, int] | None:
        """On how much of what it is measured; None where it is not asked for."""

    @abstractmethod
    def measure(self, subject: Subject, config: MeasureConfig, folder: Path) -> Finding:
        """Measure; large arrays go to files in `folder`, the run's directory."""
