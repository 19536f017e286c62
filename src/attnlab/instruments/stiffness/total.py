"""Total neural stiffness (TNS), exactly.

Definition 2 of the ICCV paper: a trajectory is stiff with degree M = (M₁, M₂) when some step has
NSI ≥ max(μ(1 + M₁), M₂), μ the mean NSI of its stage; TNS is the integral of the indicator over all
M ≥ 0, averaged over inputs.

For one input, step t of stage s is stiff on the rectangle [0, z_t/μ_s − 1] × [0, z_t]. Both sides
grow with z_t, so within a stage the rectangle of the largest NSI contains all others and the
indicator is that of a union of one rectangle per stage, anchored at the origin. Its area needs a
sort of as many numbers as there are stages. No grid, no box, no truncation, and a gradient.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnlab._errors import InputError
from attnlab.instruments.stiffness.conventions import PerStep
from attnlab.instruments.stiffness.stages import (
    PerStage,
    Stages,
    kept_members,
    pick,
    stage_peaks,
    step_excess,
)


def tns(
    nsi: PerStep,
    stages: Stages,
    *,
    means: PerStage | None = None,
    box: tuple[float, float] | None = None,
) -> Float[Tensor, " inputs"]:
    """TNS of every input; its mean over inputs is the network's TNS.

    NaN where the input is not `usable`: select with `usable` before a backward pass.

    Args:
        nsi: (inputs, steps), all steps; the first of every stage is left out of peak and mean.
        stages: the stage of every step.
        means: μ of each stage; per input when None, see `stage_peaks`.
        box: integrate over M₁ ≤ box[0], M₂ ≤ box[1] only. To see what a truncated integral loses.
    """
    peaks = stage_peaks(nsi, stages, means)
    width, height = peaks.excess.clamp(min=0), peaks.peak
    if box is not None:
        width, height = width.clamp(max=box[0]), height.clamp(max=box[1])
    return staircase_area(width, height)


def staircase_area(width: PerStage, height: PerStage) -> Float[Tensor, " inputs"]:
    """Area of the union of the rectangles [0, width] × [0, height] of each row."""
    if width.shape[1] == 0:
        return width.sum(1)
    if width.shape[1] == 1:
        return (width * height).squeeze(1)
    descending, order = width.sort(dim=1, descending=True)
    tallest = height.gather(1, order).cummax(1).values
    strips = torch.cat([descending[:, :-1] - descending[:, 1:], descending[:, -1:]], 1)
    return (strips * tallest).sum(1)


class Stiffest(NamedTuple):
    """Which step, and how much of the input's TNS it has on its own."""

    step: Int[Tensor, " inputs"]
    share: Float[Tensor, " inputs"]
    """Its own rectangle over the whole area, in (0, 1]; NaN where TNS is 0."""


def stiffest(nsi: PerStep, stages: Stages) -> Stiffest:
    """The kept step with the largest rectangle z (z/μ − 1)₊ of stiff degrees; the first, if tied.

    Where no step exceeds its stage's mean (TNS = 0), the kept step with the largest NSI.
    """
    members = kept_members(stages)
    if not members:
        raise InputError("No stage keeps a step: every stage has only its first.")
    steps = torch.tensor([b for stage in members for b in stage], device=nsi.device)
    values = [pick(nsi, stage) for stage in members]
    areas = torch.cat([z * step_excess(z).clamp(min=0) for z in values], 1)
    largest, at = areas.max(1)
    at = torch.where(largest > 0, at, torch.cat(values, 1).argmax(1))
    total = tns(nsi, stages)
    share = torch.where(total > 0, largest / torch.where(total > 0, total, 1.0), torch.nan)
    return Stiffest(steps[at], share)
