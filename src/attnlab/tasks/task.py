"""What a task is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from attnlab._errors import InputError
from attnlab.data import Batch, Facts
from attnlab.results.details import DetailsResult
from attnlab.results.metric import Metric


class Loss(NamedTuple):
    """Of one batch."""

    mean: Tensor
    """Over the inputs of the batch; what is differentiated."""
    figures: Mapping[str, Tensor]
    """Other means over the batch for the log, without a gradient."""
    parts: Mapping[str, Tensor] = {}
    """What `mean` is the sum of, where it has parts, without a gradient."""


class Pictures(NamedTuple):
    """To be looked at, beside the images that they were made of."""

    inputs: Tensor
    """(N, 3, H, W), pixels 0 to 1."""
    outputs: Tensor


class Meters(ABC):
    """Sums up predictions over test batches, and over processes."""

    @abstractmethod
    def update(self, predictions: Any, targets: Any) -> None:
        """Add a batch."""

    @abstractmethod
    def compute(self) -> dict[str, float | None]:
        """A value for each metric of the task by its name, over all processes; None where there is
        none."""


class Task(ABC):
    """Built for a data set; options of a task are arguments of its class, behind `facts`."""

    targets: ClassVar[str]
    """What the data must know of an image: see `attnlab.data.Facts.targets`; `any` where it does
    not matter."""
    metrics: ClassVar[tuple[Metric, ...]]
    """The first is the result."""
    file_options: ClassVar[tuple[str, ...]] = ()
    """Options that may name a file: its content is part of a run's identity, not its place."""
    yardstick_options: ClassVar[tuple[str, ...]] = ()
    """Options that decide what the metrics mean, so that they are the same for a whole study."""

    def __init__(self, facts: Facts) -> None:
        if self.targets not in ("any", facts.targets):
            raise InputError(
                f"Task {type(self).__name__} learns {_WORDS[self.targets]}, but data "
                f"{facts.name!r} has {_WORDS[facts.targets]}. Set another task or other data."
            )
        self.facts = facts

    def check(self, backbone: str, options: Mapping[str, Any]) -> None:  # noqa: B027
        """Refuse, before anything is trained, what could only train badly."""

    @classmethod
    def files(cls, options: Mapping[str, Any]) -> dict[str, Path]:
        """The files that `options`, or their defaults, name, by option; a missing one is an
        error."""
        del options
        return {}

    def pictures(self, network: nn.Module, batch: Batch) -> Pictures | None:
        """What the network makes of a test batch, for people; None where that is not a picture."""
        del network, batch
        return None

    @abstractmethod
    def build(self, backbone: str, options: Mapping[str, Any]) -> nn.Module:
        """The network for the data, before any gate: `backbone` is a name for `attnlab.create`."""

    @abstractmethod
    def loss(self, network: nn.Module, batch: Batch) -> Loss:
        """Of a training batch."""

    @abstractmethod
    def predict(self, network: nn.Module, batch: Batch) -> Any:
        """What `meters` take of a test batch, with a network in eval mode."""

    @abstractmethod
    def meters(self, device: torch.device) -> Meters:
        """New ones."""

    def details(self, network: nn.Module, batches: Iterable[Batch]) -> DetailsResult | None:
        """What a page shows of a finished network beside the metrics, on all test images; None,
        and this method as it is here, for a task that shows nothing."""
        del network, batches
        return None

    @abstractmethod
    def inputs(self, batch: Batch) -> Any:
        """What stiffness, stripe and fold are to see of a batch: inputs of the network."""


_WORDS = {
    "class": "classes",
    "labels": "labels",
    "values": "values",
    "boxes": "boxes",
    "nothing": "nothing",
}
