"""Quantiles of NSI in constant memory: a histogram with bins of equal ratio.

A sketch that is the same for every split of the data over batches and processes cannot be adaptive
(P², t-digest and KLL are not), so the bins are fixed: eight per octave from 2⁻¹⁰ to 2⁴, one below
and one above, 456 bytes per step. A quantile is answered by the geometric middle of its bin and is
off by at most a factor of 2^(1/16), 4.4 %. Below 2⁻¹⁰ (0.001) the answer is the smallest value
seen, above 16 the largest; neither occurs in the networks we measured after the first step.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnlab._errors import InputError
from attnlab.trajectory.conventions import PerStep

LOWEST_OCTAVE, HIGHEST_OCTAVE, BINS_PER_OCTAVE = -10, 4, 8
BINS = (HIGHEST_OCTAVE - LOWEST_OCTAVE) * BINS_PER_OCTAVE + 2
RELATIVE_ERROR = 2 ** (0.5 / BINS_PER_OCTAVE) - 1

Histogram = Int[Tensor, "steps bins"]


def histogram(nsi: PerStep) -> Histogram:
    """How many inputs fall into each bin, per step; values that are not finite are left out."""
    steps = nsi.shape[1]
    position = ((nsi.log2() - LOWEST_OCTAVE) * BINS_PER_OCTAVE).floor() + 1
    bins = position.clamp(0, BINS - 1).nan_to_num(0).long()
    flat = bins + torch.arange(steps, device=nsi.device) * BINS
    return torch.bincount(flat[nsi.isfinite()], minlength=steps * BINS).view(steps, BINS).int()


def quantile(
    counts: Histogram,
    minimum: Float[Tensor, " steps"],
    maximum: Float[Tensor, " steps"],
    probability: float,
) -> Float[Tensor, " steps"]:
    """The smallest value that at least `probability` of the inputs do not exceed, per step.

    NaN for a step without values. `minimum` and `maximum` are the exact extremes per step.
    """
    if not 0 <= probability <= 1:
        raise InputError(f"Expected a probability between 0 and 1 but got {probability}.")
    below = counts.long().cumsum(1)
    total = below[:, -1:]
    rank = torch.ceil(total * probability).clamp(min=1)
    at = (below < rank).sum(1).clamp(max=BINS - 1)
    middle = torch.exp2(LOWEST_OCTAVE + (at - 0.5).to(minimum) / BINS_PER_OCTAVE)
    middle = torch.where(at == 0, -math.inf, torch.where(at == BINS - 1, math.inf, middle))
    value = torch.minimum(torch.maximum(middle, minimum), maximum)
    return torch.where(total.squeeze(1) > 0, value, torch.nan)
