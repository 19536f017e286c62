"""What a task is, and what tasks have in common: networks of `attnlab.create`, means of metrics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import torch
import torch.distributed
from torch import Tensor, nn

from attnlab._errors import InputError, check_options
from attnlab.data import Batch, Data, Facts, Value
from attnlab.networks.create import check_network, create
from attnlab.results.details import DetailsResult
from attnlab.results.metric import Metric


class Loss(NamedTuple):
    """The loss of one batch."""

    mean: Tensor
    """The mean over the inputs of the batch, which is differentiated."""
    figures: Mapping[str, Tensor]
    """Other means over the batch for the log, without a gradient."""
    parts: Mapping[str, Tensor] = {}
    """The parts that `mean` is the sum of, if it has any, without a gradient."""


class TaskPictures(NamedTuple):
    """Pictures to be looked at, and the images that they were made of."""

    inputs: Tensor
    """(N, 3, H, W), pixels 0 to 1."""
    outputs: Tensor


P = TypeVar("P")
"""What a network says of a test batch, as the meters of its task take it."""


Item = TypeVar("Item")


def gathered(found: list[Item]) -> list[Item]:
    """Return what all processes found, in the order of the processes."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return found
    every: list[list[Item]] = [[]] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(every, found)
    return [each for part in every for each in part]


class TaskMeters(ABC, Generic[P]):
    """Sums up predictions over test batches, and over processes."""

    @abstractmethod
    def update(self, predictions: P, targets: Any) -> None:
        """Add the predictions of a batch."""

    @abstractmethod
    def compute(self) -> dict[str, float | None]:
        """Return a value for each metric of the task by its name, over all processes; None if there
        is none."""


class Task(ABC, Generic[P]):
    """Built for a data set; options of a task are arguments of its class, after `facts`."""

    targets: ClassVar[str]
    """What the data must know of an image: see `attnlab.data.Facts.targets`; `any` if it does
    not matter."""
    metrics: ClassVar[tuple[Metric, ...]]
    """The metrics; the first is the result."""
    file_options: ClassVar[tuple[str, ...]] = ()
    """Options that may name a file: its content is part of a run's identity, not its place."""
    yardstick_options: ClassVar[tuple[str, ...]] = ()
    """Options that decide what the metrics mean, so that they are the same for a whole study."""

    mean_of_inputs: ClassVar[bool] = True
    """Whether the loss of a batch is the mean of those of its inputs, so that parts of a batch, and
    the processes of a run, add up to its gradient."""

    def __init__(self, facts: Facts) -> None:
        if self.targets not in ("any", facts.targets):
            raise InputError(
                f"Task {type(self).__name__} learns {_WORDS[self.targets]}, but data "
                f"{facts.name!r} has {_WORDS[facts.targets]}. Set another task or other data."
            )
        self.facts = facts

    def check(self, backbone: str, options: Mapping[str, Value]) -> None:
        """Refuse, before anything is trained, what could only train badly."""

    @classmethod
    def check_options(cls, options: Mapping[str, Value], what: str) -> None:
        """Refuse options that the task does not have, before any data are read; `what` is what the
        message calls it."""
        check_options(what, cls, options, skip=("facts",))

    @classmethod
    def check_backbone(cls, backbone: str) -> None:
        """Refuse a name that no network of the task has, before any data are read; nothing for a
        task whose `build` has names of its own."""

    def prepared(self, data: Data) -> Data:
        """Return the data as networks of this task take them; most take them as they are."""
        return data

    @classmethod
    def files(cls, options: Mapping[str, Value]) -> dict[str, Path]:
        """The files that `options`, or their defaults, name, by option; a missing one is an
        error."""
        del options
        return {}

    def pictures(self, network: nn.Module, batch: Batch) -> TaskPictures | None:
        """Return what the network makes of a test batch, for people; None if that is not a
        picture."""
        del network, batch
        return None

    @abstractmethod
    def build(self, backbone: str, options: Mapping[str, Value]) -> nn.Module:
        """The network for the data, before any gate: `backbone` is a name for `attnlab.create`."""

    @abstractmethod
    def loss(self, network: nn.Module, batch: Batch) -> Loss:
        """Return the loss of a training batch."""

    @abstractmethod
    def predict(self, network: nn.Module, batch: Batch) -> P:
        """Return what `meters` take of a test batch, with a network in eval mode."""

    @abstractmethod
    def meters(self, device: torch.device) -> TaskMeters[P]:
        """Return fresh meters for the metrics of the task."""

    def details(self, network: nn.Module, batches: Iterable[Batch]) -> DetailsResult | None:
        """Return what a page shows of a finished network besides the metrics, on all test images;
        None, and this method as it is here, for a task that shows nothing."""
        del network, batches
        return None

    @abstractmethod
    def inputs(self, batch: Batch) -> Tensor | tuple[list[Tensor]]:
        """Return the inputs of the network in a batch, for stiffness, stripe and fold."""


_WORDS = {
    "class": "classes",
    "labels": "labels",
    "values": "values",
    "boxes": "boxes",
    "masks": "masks",
    "nothing": "nothing",
    "tokens": "the tokens of a text",
}


def create_backbone(name: str, num_classes: int | None, options: Mapping[str, Value]) -> nn.Module:
    """The network `name` with options as settings have them; `attnlab.create` checks these."""
    build: Callable[..., nn.Module] = create
    return build(name, **options) if num_classes is None else build(name, num_classes, **options)


class CreatedTask(Task[P]):
    """A task whose network is one of `attnlab.create`, so that anybody can build it again. A
    subclass adds the loss and the metrics."""

    @property
    @abstractmethod
    def num_classes(self) -> int | None:
        """The number of classes for `attnlab.create`."""

    @classmethod
    def check_backbone(cls, backbone: str) -> None:
        check_network(backbone)

    def build(self, backbone: str, options: Mapping[str, Value]) -> nn.Module:
        return create_backbone(backbone, self.num_classes, options)

    def inputs(self, batch: Batch) -> Tensor:
        images: Tensor = batch.inputs
        return images


class OutputsTask(CreatedTask[Tensor]):
    """A task whose network is a backbone with one output per class, label or value. A subclass adds
    the loss and the metrics."""

    @property
    def num_classes(self) -> int:
        return self.facts.outputs

    def predict(self, network: nn.Module, batch: Batch) -> Tensor:
        outputs: Tensor = network(batch.inputs)
        return outputs.float()


class Means:
    """Named means of one value per image, over all test images and processes, in float64."""

    def __init__(self, names: tuple[str, ...], device: torch.device) -> None:
        from torchmetrics import MeanMetric  # takes seconds, so not where it is not needed

        # NaN is not left out: a network that gives it must not look better. The device first:
        # `to` takes a metric back to float32.
        self._means = {
            name: MeanMetric(nan_strategy="disable").to(device).set_dtype(torch.float64)
            for name in names
        }

    def update(self, values: Mapping[str, Tensor]) -> None:
        for name, value in values.items():
            self._means[name].update(value.double())

    def compute(self) -> dict[str, float]:
        return {name: float(mean.compute()) for name, mean in self._means.items()}
