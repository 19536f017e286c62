"""Stiffness as torchmetrics: streams over any number of inputs and processes, in constant memory.

Each metric takes `update(nsi)` with the NSI of a batch, (inputs, steps), all steps.

Inputs whose NSI is not finite in some kept step are skipped and counted. Counts are integers and
sums are float64, so one, two or four processes give the same result.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torchmetrics import Metric

from attnlab._errors import InputError
from attnlab.instruments.stiffness.conventions import PerStep
from attnlab.instruments.stiffness.grid import (
    Grid,
    proportion_counts,
    proportion_integral,
    regular_grid,
    surface_counts,
)
from attnlab.instruments.stiffness.quantiles import count_into, empty_histogram, quantile
from attnlab.instruments.stiffness.stages import Stages, check_nsi, kept_steps, usable
from attnlab.instruments.stiffness.total import stiffest, tns


class StiffnessMetric(Metric):
    """What the metrics below share: the stage plan, skipping, and counting what was skipped."""

    full_state_update = False
    stages: Tensor
    inputs: Tensor
    skipped: Tensor

    def __init__(self, stages: Stages, **options: object) -> None:
        super().__init__(**options)
        self.register_buffer("stages", stages.detach().long().clone(), persistent=False)
        self.add_state("inputs", torch.tensor(0), dist_reduce_fx="sum")
        self.add_state("skipped", torch.tensor(0), dist_reduce_fx="sum")

    def update(self, nsi: PerStep) -> None:
        """Add a batch of inputs."""
        check_nsi(nsi, self.stages)
        nsi = nsi.detach().double()
        good = usable(nsi, self.stages)
        kept = int(good.sum())
        self.inputs += kept
        self.skipped += len(nsi) - kept
        if kept:
            self.accumulate(nsi if kept == len(nsi) else nsi[good])

    @abstractmethod
    def accumulate(self, nsi: PerStep) -> None:
        """Add inputs that are all usable, in float64."""

    def require_inputs(self) -> None:
        """Raise `InputError` if there is nothing to compute from."""
        if self.inputs == 0:
            raise InputError(
                f"Expected at least one usable input but got none ({int(self.skipped)} skipped, "
                f"because a norm was zero or not finite)."
            )


class InputCounts(NamedTuple):
    """How many inputs were measured and how many were skipped."""

    inputs: Int[Tensor, ""]
    skipped: Int[Tensor, ""]


class CountedInputs(StiffnessMetric):
    """How many inputs were measured and how many were skipped, over all processes."""

    def accumulate(self, nsi: PerStep) -> None:
        """Counting is all there is to do."""

    def compute(self) -> InputCounts:
        return InputCounts(self.inputs.clone(), self.skipped.clone())


class NsiStatistics(NamedTuple):
    """NSI over the inputs, per step."""

    mean: Float[Tensor, " steps"]
    spread: Float[Tensor, " steps"]
    """Standard deviation over inputs (divided by their number)."""
    minimum: Float[Tensor, " steps"]
    maximum: Float[Tensor, " steps"]
    quantiles: Float[Tensor, "probabilities steps"]
    """Each within 0.017 % of the exact one, see `attnlab.instruments.stiffness.quantiles`."""


class NeuralStiffnessIndex(StiffnessMetric):
    """Mean, spread, extremes and quantiles of NSI per step; NaN in steps that have none."""

    number: Tensor
    sum: Tensor
    squares: Tensor
    minimum: Tensor
    maximum: Tensor
    counts: Tensor

    def __init__(
        self,
        stages: Stages,
        probabilities: tuple[float, ...] = (0.05, 0.5, 0.95),
        **options: object,
    ) -> None:
        super().__init__(stages, **options)
        self.probabilities = probabilities
        steps = len(stages)
        zeros = torch.zeros(steps, dtype=torch.float64)
        self.add_state("number", torch.zeros(steps, dtype=torch.int64), dist_reduce_fx="sum")
        self.add_state("sum", zeros.clone(), dist_reduce_fx="sum")
        self.add_state("squares", zeros.clone(), dist_reduce_fx="sum")
        self.add_state("minimum", zeros + torch.inf, dist_reduce_fx="min")
        self.add_state("maximum", zeros - torch.inf, dist_reduce_fx="max")
        self.add_state("counts", empty_histogram(steps), dist_reduce_fx="sum")

    def accumulate(self, nsi: PerStep) -> None:
        # The first step of a stage may have no NSI, in an input that is usable all the same.
        finite = nsi.isfinite()
        values = torch.where(finite, nsi, 0.0)
        self.number += finite.sum(0)
        self.sum += values.sum(0)
        self.squares += values.square().sum(0)
        self.minimum = self.minimum.minimum(torch.where(finite, nsi, torch.inf).amin(0))
        self.maximum = self.maximum.maximum(torch.where(finite, nsi, -torch.inf).amax(0))
        count_into(self.counts, nsi)

    def compute(self) -> NsiStatistics:
        self.require_inputs()
        mean = self.sum / self.number
        spread = (self.squares / self.number - mean.square()).clamp(min=0).sqrt()
        present = self.number > 0
        minimum = torch.where(present, self.minimum, torch.nan)
        maximum = torch.where(present, self.maximum, torch.nan)
        quantiles = torch.stack(
            [quantile(self.counts, minimum, maximum, p) for p in self.probabilities]
        )
        return NsiStatistics(mean, spread, minimum, maximum, quantiles)


class TotalStiffness(NamedTuple):
    """TNS over the inputs."""

    mean: Float[Tensor, ""]
    """The TNS of the network."""
    spread: Float[Tensor, ""]
    """Standard deviation over inputs (divided by their number)."""


class TotalNeuralStiffness(StiffnessMetric):
    """TNS, exact, with its spread over inputs."""

    sum: Tensor
    squares: Tensor

    def __init__(self, stages: Stages, **options: object) -> None:
        super().__init__(stages, **options)
        self.add_state("sum", torch.tensor(0.0, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("squares", torch.tensor(0.0, dtype=torch.float64), dist_reduce_fx="sum")

    def accumulate(self, nsi: PerStep) -> None:
        values = tns(nsi, self.stages)
        self.sum += values.sum()
        self.squares += values.square().sum()

    def compute(self) -> TotalStiffness:
        self.require_inputs()
        mean = self.sum / self.inputs
        return TotalStiffness(
            mean, (self.squares / self.inputs - mean.square()).clamp(min=0).sqrt()
        )


class GridMetric(StiffnessMetric):
    """What the two metrics on a grid of degrees M share."""

    relative: Tensor
    absolute: Tensor
    counts: Tensor

    def __init__(self, stages: Stages, grid: Grid | None = None, **options: object) -> None:
        super().__init__(stages, **options)
        grid = regular_grid() if grid is None else grid
        self.register_buffer("relative", grid.relative.clone(), persistent=False)
        self.register_buffer("absolute", grid.absolute.clone(), persistent=False)
        shape = len(grid.relative), len(grid.absolute)
        self.add_state("counts", torch.zeros(shape, dtype=torch.int64), dist_reduce_fx="sum")

    @property
    def grid(self) -> Grid:
        """The degrees M."""
        return Grid(self.relative, self.absolute)


class StiffnessSurface(GridMetric):
    """δ(M): the share of inputs with stiffness of degree M, exact at every grid point."""

    def accumulate(self, nsi: PerStep) -> None:
        self.counts += surface_counts(nsi, self.stages, self.grid)

    def compute(self) -> Float[Tensor, "degrees1 degrees2"]:
        self.require_inputs()
        return self.counts.double() / self.inputs


class Proportion(NamedTuple):
    """p̂(M), with L the number of kept steps."""

    values: Float[Tensor, "degrees1 degrees2"]
    integral: Float[Tensor, ""]
    """∫ p̂(M) dM over all M ≥ 0, not only over the grid."""


class StiffnessProportion(GridMetric):
    """p̂(M): the share of kept steps with stiffness of degree M, exact, and its exact integral."""

    integral: Tensor

    def __init__(self, stages: Stages, grid: Grid | None = None, **options: object) -> None:
        super().__init__(stages, grid, **options)
        self.add_state("integral", torch.tensor(0.0, dtype=torch.float64), dist_reduce_fx="sum")

    def accumulate(self, nsi: PerStep) -> None:
        self.counts += proportion_counts(nsi, self.stages, self.grid)
        self.integral += proportion_integral(nsi, self.stages).sum()

    def compute(self) -> Proportion:
        self.require_inputs()
        kept = max(int(kept_steps(self.stages).sum()), 1)
        return Proportion(self.counts.double() / (self.inputs * kept), self.integral / self.inputs)


class StiffestCounts(NamedTuple):
    """Which steps are the stiffest of an input, and how much of TNS that one step has."""

    inputs: Int[Tensor, " steps"]
    """The number of inputs of which each step is the stiffest."""
    share: Float[Tensor, ""]
    """Mean share of TNS that the stiffest step has on its own; NaN if TNS is 0 for every input."""


class StiffestStepCounter(StiffnessMetric):
    """Which step is the stiffest, counted over inputs. Needs a stage with at least two steps."""

    counts: Tensor
    shares: Tensor
    shared: Tensor

    def __init__(self, stages: Stages, **options: object) -> None:
        super().__init__(stages, **options)
        counts = torch.zeros(len(stages), dtype=torch.int64)
        self.add_state("counts", counts, dist_reduce_fx="sum")
        self.add_state("shares", torch.tensor(0.0, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("shared", torch.tensor(0), dist_reduce_fx="sum")

    def accumulate(self, nsi: PerStep) -> None:
        found = stiffest(nsi, self.stages)
        self.counts += torch.bincount(found.step, minlength=len(self.stages))
        self.shares += found.share.nansum()
        self.shared += found.share.isfinite().sum()

    def compute(self) -> StiffestCounts:
        self.require_inputs()
        return StiffestCounts(self.counts.clone(), self.shares / self.shared)
