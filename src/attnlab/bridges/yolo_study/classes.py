"""Classes of images, told by a network that Ultralytics trains."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from attnlab._errors import InputError, OptionError
from attnlab.bridges.yolo_study.base import Named, UltralyticsTask, share
from attnlab.bridges.yolo_study.batches import YoloClasses
from attnlab.bridges.yolo_study.folder import class_name
from attnlab.bridges.yolo_study.kinds import CLASSIFY
from attnlab.bridges.yolo_study.offline import offline
from attnlab.data import Batch, Data
from attnlab.data.batches import Chunk
from attnlab.tasks.task import Loss, TaskMeters

_SMALLEST = 10
_COMPARED = 64
"""Training images that are read twice to see that they do not change."""


class UltralyticsClassify(UltralyticsTask[Tensor]):
    """A classifier that Ultralytics trains; the result is top-1 accuracy. Backbones and options are
    those of `UltralyticsTask`.

    Args:
        facts: of the data.
        imgsz: the side that images are resized to.
        settings: Ultralytics' own.
    """

    kind = CLASSIFY
    targets = "class"
    metrics = (share("top1", "top-1"), share("top5", "top-5"))
    their_metrics = {"top1": "accuracy_top1", "top5": "accuracy_top5"}

    def written(self, data: Data) -> YoloClasses:
        if min(data.facts.shape[1:]) < _SMALLEST:
            raise OptionError(
                f"Ultralytics reads no image with a side below {_SMALLEST} pixels, and those of "
                f"{data.facts.name!r} are {data.facts.shape[2]}×{data.facts.shape[1]}. Set "
                f"data.size, such as {self.imgsz}."
            )
        some = [Chunk(torch.arange(min(data.facts.train, _COMPARED)), 1.0)]
        one, other = (next(data.training(some, 0, epoch, torch.device("cpu"))) for epoch in (0, 1))
        if one.targets.ndim != 1 or not torch.equal(one.inputs, other.inputs):
            raise OptionError(
                f"{self.title} augments by its trainer's own settings, such as fliplr, but "
                f"data.augmentation changes training images. Leave it out, or set crop to 'none', "
                f"flip to false, and the others to nothing."
            )
        return YoloClasses(data, self.kind, self.imgsz, {})

    def built(self, network: type[nn.Module], layers: dict[str, Any]) -> nn.Module:
        found = network(layers, nc=self.facts.outputs, verbose=False)
        dropout = self.settings.get("dropout")
        for module in found.modules():  # as their trainer does with a network that it builds
            if isinstance(module, nn.Dropout) and dropout:
                module.p = float(dropout)
        return found

    def class_names(self) -> tuple[str, ...]:
        return tuple(class_name(n, self.facts.outputs) for n in range(self.facts.outputs))

    def loss(self, network: nn.Module, batch: Batch) -> Loss:
        mean = nn.functional.cross_entropy(_logits(network(batch.inputs)), batch.targets)
        return Loss(mean, {}, {"loss": mean.detach().double()})

    def predict(self, network: nn.Module, batch: Batch) -> Tensor:
        return _logits(network(batch.inputs)).float()

    def meters(self, device: torch.device) -> TaskMeters[Tensor]:
        del device
        return _Classes(self)


def _logits(answer: object) -> Tensor:
    """Return the logits of an answer, which in testing has the probabilities before them."""
    found = answer[1] if isinstance(answer, list | tuple) else answer
    if not isinstance(found, Tensor):
        raise InputError(f"Expected a classifier to answer with logits but got {type(found)}.")
    return found


class _Classes(TaskMeters[Tensor]):
    """Their validator, told of the answers."""

    def __init__(self, task: UltralyticsClassify) -> None:
        self._figures = task.figures
        with offline():
            self._validator = task.validator()
            self._validator.init_metrics(Named(task.class_names()))

    def update(self, predictions: Tensor, targets: Tensor) -> None:
        self._validator.update_metrics(predictions, {"cls": targets})

    def compute(self) -> dict[str, float | None]:
        return self._figures(self._validator.get_stats())
