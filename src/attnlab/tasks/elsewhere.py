"""Tasks whose networks another program trains: it has its own loop, optimizer and augmentation, and
a run is kept, proved and shown like any other."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from torch import nn

from attnlab.data import Data
from attnlab.results.epoch import EpochRecord
from attnlab.tasks.task import P, Task

TrainerState = Mapping[str, Any]
"""What a trainer needs to go on, as checkpoints hold it: tensors, numbers and text by name."""


@dataclass(frozen=True)
class Assignment:
    """A run for another program's trainer: what it is told, and whom it tells."""

    folder: Path
    """The trainer's own; what is in it is not part of the run's record."""
    epochs: int
    batch_size: int
    seed: int
    threads: int
    done: int
    """Epochs that are done."""
    state: TrainerState | None
    """What was handed to `ended` after the last of them."""
    note: Callable[[str], None]
    """Say something in the run's log."""
    stepped: Callable[[int, int, int], None]
    """A step was made: the epoch from 0, how many steps of it are done, and how many it has."""
    ended: Callable[[EpochRecord, nn.Module, TrainerState], None]
    """An epoch ended: its record, the network that was tested, and what the trainer needs to go
    on. It is saved when this returns."""


class TaskTrainedElsewhere(Task[P]):
    """A task whose networks another program trains. Of a recipe it has epochs and batch sizes;
    the program's own settings are options of the task."""

    recipe: ClassVar[str]
    """The recipe with the epochs and batch sizes that the program would take."""

    @abstractmethod
    def train(self, network: nn.Module, data: Data, assignment: Assignment) -> None:
        """Train a network from where it stands; every epoch is reported.

        Args:
            network: as it was built, or as `ended` was given it last. It is left as it is.
            data: as `prepared` returned them.
            assignment: what is asked for.
        """
