"""Numbers of an image."""

from __future__ import annotations

from typing import Any

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

        made = MeanAbsoluteError(), MeanSquaredError(squared=False), R2Score()
        self._meters = [meter.to(device).set_dtype(torch.float64) for meter in made]

    def update(self, predictions: Tensor, targets: Tensor) -> None:
        for meter in self._meters:
            meter.update(predictions.double(), targets.double())

    def compute(self) -> dict[str, float | None]:
        mae, rmse = (float(meter.compute()) for meter in self._meters[:2])
        return {"mae": mae, "rmse": rmse, "r2": self._explained()}

    def _explained(self) -> float | None:
        """R² of torchmetrics' sums. Its own takes a spread below 1e-4 for none and says 0 or 1,
        whatever was predicted, so that the unit of the values would count."""
        sums: Any = self._meters[2]
        with sums.sync_context():
            spread = sums.sum_squared_error - sums.sum_error**2 / sums.total
            if bool((spread <= 1e-12 * sums.sum_squared_error).any()):
                return None  # values that are all the same have no variance to be explained
            return float((1 - sums.residual / spread).mean())
