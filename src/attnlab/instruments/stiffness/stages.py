"""Which steps count, and what a stage contributes: its largest NSI, and how far above the mean."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnlab._errors import InputError
from attnlab.instruments.stiffness.conventions import PerStep

Stages = Int[Tensor, " steps"]
"""The stage of every step, any integers, steps in the order the network runs them."""

PerStage = Float[Tensor, "inputs stages"]


def kept_steps(stages: Stages) -> Bool[Tensor, " steps"]:
    """True for every step but the first of its stage, whose state changes shape."""
    seen: set[int] = set()
    kept = []
    for stage in stages.tolist():
        kept.append(stage in seen)
        seen.add(stage)
    return torch.tensor(kept, dtype=torch.bool, device=stages.device)


def kept_members(stages: Stages) -> list[list[int]]:
    """The kept steps of each stage, in order; a stage of one step has none and is left out."""
    members: dict[int, list[int]] = {}
    for step, stage in enumerate(stages.tolist()):
        members.setdefault(stage, []).append(step)
    return [steps[1:] for steps in members.values() if len(steps) > 1]


def check_nsi(nsi: PerStep, stages: Stages) -> None:
    """Raise `InputError` unless `nsi` is (inputs, steps) with one stage per step."""
    if nsi.ndim != 2 or stages.ndim != 1 or nsi.shape[1] != stages.numel():
        raise InputError(
            f"Expected nsi of shape (inputs, steps) and one stage per step but got "
            f"{tuple(nsi.shape)} and {tuple(stages.shape)} stages."
        )


def usable(nsi: PerStep, stages: Stages) -> Bool[Tensor, " inputs"]:
    """True for inputs whose NSI is finite in every kept step; the others are to be skipped."""
    check_nsi(nsi, stages)
    members = [step for steps in kept_members(stages) for step in steps]
    # Multiplying by zero leaves 0 for a finite sum and NaN otherwise: one pass and no mask.
    return (pick(nsi, members).sum(1) * 0) == 0


class StagePeaks(NamedTuple):
    """One rectangle [0, excess] × [0, peak] of stiff degrees M per input and stage."""

    peak: PerStage
    """b: the largest NSI of the stage."""
    excess: PerStage
    """a = b / μ − 1: how far the peak is above the stage's mean."""


def pick(nsi: PerStep, steps: list[int]) -> PerStep:
    """Columns of `nsi`; a view when they are neighbours, as the steps of a stage mostly are."""
    if steps and steps == list(range(steps[0], steps[-1] + 1)):
        return nsi[:, steps[0] : steps[-1] + 1]
    return nsi[:, steps]


def stage_peaks(nsi: PerStep, stages: Stages, means: PerStage | None = None) -> StagePeaks:
    """Peak and excess of each stage that keeps at least one step.

    Args:
        nsi: (inputs, steps).
        stages: the stage of every step.
        means: μ of each stage, (1, stages) or (inputs, stages), in the order in which the stages
            appear. Per input and from `nsi` itself when None; a mean over a batch would make the
            result depend on the batch size. With given means the excess may be negative.
    """
    check_nsi(nsi, stages)
    members = kept_members(stages)
    if not members:
        empty = nsi.new_zeros(nsi.shape[0], 0)
        return StagePeaks(empty, empty)
    peak = torch.stack([pick(nsi, steps).amax(1) for steps in members], 1)
    if means is None:
        # A mean is never above the largest value; rounding can say otherwise.
        mean = torch.stack([pick(nsi, steps).mean(1) for steps in members], 1).minimum(peak)
    elif means.ndim == 2 and means.shape[1] == len(members):
        mean = means
    else:
        raise InputError(
            f"Expected means of shape (1 or inputs, {len(members)}), one per stage that keeps a "
            f"step, but got {tuple(means.shape)}."
        )
    return StagePeaks(peak, relative_excess(peak, mean))


def step_excess(values: PerStep) -> PerStep:
    """z / μ − 1 of every step of one stage, given the NSI of its kept steps."""
    return relative_excess(
        values, values.mean(1, keepdim=True).minimum(values.amax(1, keepdim=True))
    )


def relative_excess(value: Tensor, mean: Tensor) -> Tensor:
    """value / mean − 1, and 0 where the mean is 0: a stage that does not move is not stiff."""
    moving = mean != 0
    ratio = value / torch.where(moving, mean, 1.0) - 1
    return torch.where(moving, ratio, 0.0)
