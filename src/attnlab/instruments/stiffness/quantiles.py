"""Quantiles of NSI in constant memory: a histogram with bins of equal ratio.

A sketch that is the same for every split of the data over batches and processes cannot be adaptive
(P², t-digest and KLL are not), so the bins are fixed: 2,048 per octave from 2⁻¹¹ to 2⁵, one below
and one above, 131 kB per step. A quantile is answered by the geometric middle of its bin, so it is
off by at most a factor of 2^(1/4096), 0.017 %: less than half of the third decimal that tables show
up to an NSI of 2.9, and less than one of it up to 5.9. Below 2⁻¹¹ (0.0005) the answer is the
smallest value seen, above 32 the largest; both extremes are exact.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnlab._errors import InputError
from attnlab.instruments.stiffness.conventions import PerStep

LOWEST_OCTAVE, HIGHEST_OCTAVE, BINS_PER_OCTAVE = -11, 5, 2048
BINS = (HIGHEST_OCTAVE - LOWEST_OCTAVE) * BINS_PER_OCTAVE + 2
RELATIVE_ERROR = 2 ** (0.5 / BINS_PER_OCTAVE) - 1

Histogram = Int[Tensor, "steps bins"]


def empty_histogram(steps: int) -> Histogram:
    return torch.zeros(steps, BINS, dtype=torch.int32)


def count_into(counts: Histogram, nsi: PerStep) -> None:
    """Add to `counts`, per step, how many inputs fall into each bin; values that are not finite are
    left out."""
    position = ((nsi.log2() - LOWEST_OCTAVE) * BINS_PER_OCTAVE).floor() + 1
    bins = position.clamp(0, BINS - 1).nan_to_num(0).long()
    flat = bins + torch.arange(nsi.shape[1], device=nsi.device) * BINS
    taken = flat[nsi.isfinite()]
    counts.view(-1).index_add_(0, taken, torch.ones_like(taken, dtype=counts.dtype))


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
