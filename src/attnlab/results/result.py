"""What a training found; result.json of its directory."""

from __future__ import annotations

from typing import Literal

from attnlab._strict import Strict
from attnlab.results.metric import Metric
from attnlab.results.placement import PlacementRecord


class RunResult(Strict):
    """The result is the last epoch of the recipe. The best epoch was chosen by looking at the test
    images, so it is there for comparison with papers that report it, and never the result."""

    format: Literal[2] = 2
    run_id: str
    label: str
    epochs: int
    metrics: tuple[Metric, ...]
    """What the values are; the first is the result."""
    values: dict[str, float | None]
    """Last epoch, by the metric's name; None where a metric has no meaning for the data."""
    best_value: float
    """Of the first metric. Optimistic: the best epoch on the test images."""
    best_epoch: int
    """From 1."""
    train_loss: float
    parameters: int
    macs: int | None
    """Multiply-accumulates for one image; None where they depend on what is found in it."""
    train_images_per_second: float
    """Median over epochs, data included, evaluation left out."""
    data_share: float
    """Share of the training time that was spent on waiting for data."""
    seconds: float
    """All epochs with their evaluation."""
    sites: int | None = None
    """At how many places gates act; None of results that do not say it."""
    placement: PlacementRecord | None = None
    """How these were chosen, where that was by a measurement."""

    @property
    def metric(self) -> Metric:
        """The result's."""
        return self.metrics[0]

    @property
    def value(self) -> float:
        """The result."""
        found = self.values[self.metric.name]
        assert found is not None
        return found
