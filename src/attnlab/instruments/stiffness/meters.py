"""All stiffness metrics of one network, fed together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from attnlab.instruments.stiffness import metrics
from attnlab.instruments.stiffness.conventions import PerStep
from attnlab.instruments.stiffness.grid import Grid
from attnlab.instruments.stiffness.stages import Stages, kept_members
from attnlab.residuals import StepKey

if TYPE_CHECKING:
    from attnlab.instruments.stiffness.capture import StreamNorms
    from attnlab.instruments.stiffness.plan import Plan


class MeteredStiffness(NamedTuple):
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

    def compute(self) -> MeteredStiffness:
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
        return MeteredStiffness(
            self.counts.compute(),
            nsi,
            self.total.compute(),
            self.surface.compute(),
            self.proportion.compute(),
            stiffest,
        )


class MeteredStreams(NamedTuple):
    """What was found stream by stream."""

    nsi: dict[StepKey, tuple[float, ...]]
    """The NSI of every step with streams, mean over inputs."""
    tns: tuple[float, ...]
    """The TNS of every stream; empty where not all steps have the same number of them."""


class StreamMeters:
    """NSI of every stream of every step, and TNS of every stream: each stream is a trajectory."""

    def __init__(self, plan: Plan) -> None:
        self.steps = [span.first for span in plan.spans]
        self.stages = plan.stages
        numbers = {step.form.streams for step in self.steps}
        self.number = numbers.pop() if len(numbers) == 1 else 1
        self.nsi = [
            metrics.NeuralStiffnessIndex(torch.zeros(step.form.streams, dtype=torch.int64))
            if step.form.streams > 1
            else None
            for step in self.steps
        ]
        self.total = [
            metrics.TotalNeuralStiffness(self.stages)
            for _ in range(self.number if self.number > 1 else 0)
        ]

    def update(self, norms: Sequence[StreamNorms | None]) -> None:
        """Add a batch of inputs: of every step its norms, None of one with a single stream."""
        ratios = [None if each is None else _ratio(each) for each in norms]
        for metric, ratio in zip(self.nsi, ratios, strict=True):
            if metric is not None and ratio is not None:
                metric.update(ratio)
        known = [ratio for ratio in ratios if ratio is not None]
        for stream, total in enumerate(self.total):
            if len(known) == len(self.steps):
                total.update(torch.stack([ratio[:, stream] for ratio in known], 1))

    def compute(self) -> MeteredStreams:
        """The results over all inputs."""
        nsi = {
            step.key: tuple(metric.compute().mean.tolist())
            for step, metric in zip(self.steps, self.nsi, strict=True)
            if metric is not None and metric.inputs
        }
        tns = tuple(each.compute().mean.item() for each in self.total if each.inputs)
        return MeteredStreams(nsi, tns)


def _ratio(norms: StreamNorms) -> Tensor:
    """(inputs, streams); NaN where a stream is zero."""
    shortcut, update = norms.shortcut.cpu(), norms.update.cpu()
    defined = shortcut > 0
    return torch.where(defined, update / torch.where(defined, shortcut, 1.0), torch.nan)
