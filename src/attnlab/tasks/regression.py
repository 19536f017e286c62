"""Numbers of an image."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.data import Batch
from attnlab.results.metric import Metric
from attnlab.tasks.task import Loss, OutputsTask, TaskMeters


class Regression(OutputsTask):
    """Squared error; the result is the mean absolute error, in the data's own unit."""

    targets = "values"
    metrics = (
        Metric(name="mae", label="mean |error|", better="lower", least=0, digits=4),
        Metric(name="rmse", label="root mean squared error", better="lower", least=0, digits=4),
        Metric(name="r2", label="R²", most=1, digits=3, nothing=0.0),
    )

    def loss(self, network: nn.Module, batch: Batch) -> Loss:
        values = network(batch.inputs)
        mean = F.mse_loss(values, batch.targets.to(values.dtype))
        return Loss(mean, {"mae": (values.detach() - batch.targets).abs().double().mean()})

    def meters(self, device: torch.device) -> TaskMeters[Tensor]:
        return _Errors(device)


class _Errors(TaskMeters[Tensor]):
    def __init__(self, device: torch.device) -> None:
        from torchmetrics.regression import MeanAbsoluteError, MeanSquaredError, R2Score

        made = {
            "mae": MeanAbsoluteError(),
            "rmse": MeanSquaredError(squared=False),
            "r2": R2Score(),
        }
        self._meters = {
            name: meter.to(device).set_dtype(torch.float64) for name, meter in made.items()
        }

    def update(self, predictions: Tensor, targets: Tensor) -> None:
        for meter in self._meters.values():
            meter.update(predictions.double(), targets.double())

    def compute(self) -> dict[str, float | None]:
        found = {name: float(meter.compute()) for name, meter in self._meters.items()}
        # Values that are all the same have no variance to be explained.
        defined = math.isfinite(found["r2"]) or not math.isfinite(found["mae"])
        return {**found, "r2": found["r2"] if defined else None}
