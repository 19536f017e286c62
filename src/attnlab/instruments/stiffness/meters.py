"""All stiffness metrics of one network, fed together."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from attnlab.instruments.stiffness import metrics
from attnlab.instruments.stiffness.conventions import PerStep
from attnlab.instruments.stiffness.grid import Grid
from attnlab.instruments.stiffness.stages import Stages, kept_members


class MeterReadings(NamedTuple):
    """What the metrics found."""

    counts: metrics.InputCounts
    nsi: metrics.NsiStatistics
    total: metrics.TotalStiffness
    surface: Tensor
    proportion: metrics.Proportion
    stiffest: metrics.StiffestCounts


class Meters:
    """Every metric of `attnlab.instruments.stiffness.metrics` for one stage plan."""

    def __init__(self, stages: Stages, grid: Grid) -> None:
        self.counts = metrics.CountedInputs(stages)
        self.nsi = metrics.NeuralStiffnessIndex(stages)
        self.total = metrics.TotalNeuralStiffness(stages)
        self.surface = metrics.StiffnessSurface(stages, grid)
        self.proportion = metrics.StiffnessProportion(stages, grid)
        self.stiffest = metrics.StiffestStepCounter(stages)
        self.steps = len(stages)
        self.any_kept = bool(kept_members(stages))

    def update(self, nsi: PerStep) -> None:
        """Add a batch of inputs."""
        for metric in (self.counts, self.nsi, self.total, self.surface, self.proportion):
            metric.update(nsi)
        if self.any_kept:
            self.stiffest.update(nsi)

    def compute(self) -> MeterReadings:
        """The results over all inputs, of all processes."""
        # torchmetrics takes the axis off tensors of one element, and a network may have one step.
        nsi = self.nsi.compute()
        nsi = nsi._replace(
            mean=nsi.mean.reshape(self.steps),
            spread=nsi.spread.reshape(self.steps),
            minimum=nsi.minimum.reshape(self.steps),
            maximum=nsi.maximum.reshape(self.steps),
        )
        stiffest = metrics.StiffestCounts(
            torch.zeros(self.steps, dtype=torch.int64), torch.tensor(torch.nan)
        )
        if self.any_kept:
            stiffest = self.stiffest.compute()
            stiffest = stiffest._replace(inputs=stiffest.inputs.reshape(self.steps))
        return MeterReadings(
            self.counts.compute(),
            nsi,
            self.total.compute(),
            self.surface.compute(),
            self.proportion.compute(),
            stiffest,
        )
