"""The stiffest block of an input: the one that TNS is, in effect, a statistic of."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnlab._errors import InputError
from attnlab.trajectory.conventions import PerBlock
from attnlab.trajectory.stages import Stages, block_excess, kept_members, pick
from attnlab.trajectory.total import tns


class Stiffest(NamedTuple):
    """Which block, and how much of the input's TNS it has on its own."""

    block: Int[Tensor, " inputs"]
    share: Float[Tensor, " inputs"]
    """Its own rectangle over the whole area, in (0, 1]; NaN where TNS is 0."""


def stiffest(nsi: PerBlock, stages: Stages) -> Stiffest:
    """The kept block with the largest rectangle z (z/μ − 1)₊ of stiff degrees; the first, if tied.

    Where no block exceeds its stage's mean (TNS = 0), the kept block with the largest NSI.
    """
    members = kept_members(stages)
    if not members:
        raise InputError("No stage keeps a block: every stage has only its first.")
    blocks = torch.tensor([b for stage in members for b in stage], device=nsi.device)
    values = [pick(nsi, stage) for stage in members]
    areas = torch.cat([z * block_excess(z).clamp(min=0) for z in values], 1)
    largest, at = areas.max(1)
    at = torch.where(largest > 0, at, torch.cat(values, 1).argmax(1))
    total = tns(nsi, stages)
    share = torch.where(total > 0, largest / torch.where(total > 0, total, 1.0), torch.nan)
    return Stiffest(blocks[at], share)
