"""Any number of labels per image."""

from __future__ import annotations

import warnings

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.data import Batch
from attnlab.results.metric import Metric
from attnlab.tasks.task import Loss, Means, OutputsTask, TaskMeters


class MultiLabel(OutputsTask):
    """Binary cross-entropy of every label; the result is mean average precision over the labels
    that some test image has."""

    targets = "labels"
    metrics = (
        Metric(name="map", label="mAP", unit="%", scale=100, least=0, most=1),
        Metric(name="exact", label="all labels right", unit="%", scale=100, least=0, most=1),
        Metric(name="loss", label="test loss", better="lower", least=0, digits=3),
    )

    def loss(self, network: nn.Module, batch: Batch) -> Loss:
        logits = network(batch.inputs)
        mean = F.binary_cross_entropy_with_logits(logits, batch.targets.to(logits.dtype))
        right = ((logits.detach() > 0) == (batch.targets > 0)).all(1).double().mean()
        return Loss(mean, {"exact": right})

    def meters(self, device: torch.device) -> TaskMeters[Tensor]:
        return _Precision(device, self.facts.outputs)


class _Precision(TaskMeters[Tensor]):
    """A label is given where its logit is positive."""

    def __init__(self, device: torch.device, labels: int) -> None:
        from torchmetrics import SumMetric
        from torchmetrics.classification import MultilabelAveragePrecision

        self._precision = MultilabelAveragePrecision(labels, average="none").to(device)
        self._images = [SumMetric().to(device) for _ in range(labels)]
        self._means = Means(("exact", "loss"), device)

    def update(self, predictions: Tensor, targets: Tensor) -> None:
        # In float64, so that no two logits fall together in the sigmoid.
        self._precision.update(predictions.double().sigmoid(), targets)
        for images, having in zip(self._images, targets.unbind(1), strict=True):
            images.update(having)
        loss = F.binary_cross_entropy_with_logits(
            predictions, targets.to(predictions.dtype), reduction="none"
        )
        exact = ((predictions > 0) == (targets > 0)).all(1)
        self._means.update({"exact": exact, "loss": loss.mean(1)})

    def compute(self) -> dict[str, float | None]:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "No positive samples found")
            each = self._precision.compute().double()
        known = torch.tensor([float(images.compute()) > 0 for images in self._images])
        mean = float(each[known].mean()) if bool(known.any()) else None
        return {"map": mean, **self._means.compute()}
