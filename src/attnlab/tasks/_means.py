"""Means over all test images and processes, in float64."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


class Means:
    """Named means of one value per image."""

    def __init__(self, names: tuple[str, ...], device: torch.device) -> None:
        from torchmetrics import MeanMetric  # takes seconds, so not where it is not needed

        # NaN is not left out: a network that gives it must not look better.
        made = {
            name: MeanMetric(nan_strategy="disable").set_dtype(torch.float64).to(device)
            for name in names
        }
        self._means = made

    def update(self, values: Mapping[str, Tensor]) -> None:
        for name, value in values.items():
            self._means[name].update(value.double())

    def compute(self) -> dict[str, float]:
        return {name: float(mean.compute()) for name, mean in self._means.items()}
