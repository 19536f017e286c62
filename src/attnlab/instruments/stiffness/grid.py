"""The surface δ(M) and the stiffness proportion p̂(M) on a grid, as exact integer counts.

Every input is stiff on a staircase of degrees M, every step on a rectangle. Instead of comparing
each with each grid point, its corners go into a 2-D difference array, and two cumulative sums turn
corners into counts. Counts are integers, so any split of the inputs over batches and processes
gives the same result to the last bit.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnlab._errors import InputError
from attnlab.instruments.stiffness.conventions import PerStep
from attnlab.instruments.stiffness.stages import (
    Stages,
    kept_members,
    pick,
    stage_peaks,
    step_excess,
)

Counts = Int[Tensor, "degrees1 degrees2"]


class Grid(NamedTuple):
    """The degrees M = (M₁, M₂) at which δ and p̂ are evaluated, each ascending."""

    relative: Float[Tensor, " degrees1"]
    """M₁: how far above the mean of the stage."""
    absolute: Float[Tensor, " degrees2"]
    """M₂: how large."""


def regular_grid(relative: float = 4.0, absolute: float = 2.0, points: int = 33) -> Grid:
    """`points` × `points` degrees from 0 to (`relative`, `absolute`)."""
    if points < 2 or relative <= 0 or absolute <= 0:
        raise InputError(
            f"Expected a grid of at least 2 points up to positive degrees but got points={points}, "
            f"relative={relative}, absolute={absolute}."
        )
    return Grid(
        torch.linspace(0, relative, points, dtype=torch.float64),
        torch.linspace(0, absolute, points, dtype=torch.float64),
    )


def surface_counts(nsi: PerStep, stages: Stages, grid: Grid) -> Counts:
    """Return how many inputs have stiffness of each degree, inputs × δ(M). All must be `usable`."""
    peaks = stage_peaks(nsi.detach(), stages)
    excess, order = peaks.excess.sort(dim=1, descending=True)
    right = _reached(grid.relative, excess)
    height = _reached(grid.absolute, peaks.peak.gather(1, order)).cummax(1).values
    left = torch.cat([right[:, 1:], torch.zeros_like(right[:, :1])], 1)
    # Strip k of the staircase covers columns left..right-1 and rows 0..height-1.
    corners = _corners(right, height, grid) - _corners(left, height, grid)
    return _covered(corners)


def proportion_counts(nsi: PerStep, stages: Stages, grid: Grid) -> Counts:
    """Return how many kept steps, over all inputs, have stiffness of each degree. All must be
    `usable`.

    Divided by inputs × kept steps, p̂(M).
    """
    corners = torch.zeros(
        len(grid.relative) + 1, len(grid.absolute) + 1, dtype=torch.int64, device=nsi.device
    )
    for steps in kept_members(stages):
        values = pick(nsi.detach(), steps)
        columns = _reached(grid.relative, step_excess(values))
        corners += _corners(columns, _reached(grid.absolute, values), grid)
    return _covered(corners)


def proportion_integral(nsi: PerStep, stages: Stages) -> Float[Tensor, " inputs"]:
    """∫ p̂(M) dM of every input, exactly: (1/L) Σ z (z/μ − 1)₊, L the number of kept steps."""
    members = kept_members(stages)
    kept = sum(len(steps) for steps in members)
    total = nsi.new_zeros(nsi.shape[0])
    for steps in members:
        values = pick(nsi, steps)
        total = total + (values * step_excess(values).clamp(min=0)).sum(1)
    return total / max(kept, 1)


def _reached(degrees: Tensor, values: Tensor) -> Tensor:
    """How many of the ascending `degrees` are at most each value."""
    return torch.searchsorted(degrees.to(values), values.contiguous(), right=True)


def _corners(column: Tensor, row: Tensor, grid: Grid) -> Counts:
    """How many rectangles have their outer corner at each (column, row)."""
    rows = len(grid.absolute) + 1
    size = (len(grid.relative) + 1) * rows
    return torch.bincount((column * rows + row).flatten(), minlength=size).view(-1, rows)


def _covered(corners: Counts) -> Counts:
    """At each grid point, how many outer corners lie beyond it in both directions."""
    return corners.flip(0, 1).cumsum(0).cumsum(1).flip(0, 1)[1:, 1:]
