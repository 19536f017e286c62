"""The stiffest step of an input: the one that TNS is, in effect, a statistic of."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnlab._errors import InputError
from attnlab.instruments.stiffness.conventions import PerStep
from attnlab.instruments.stiffness.stages import Stages, kept_members, pick, step_excess
from attnlab.instruments.stiffness.total import tns


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
