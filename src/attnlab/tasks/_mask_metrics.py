"""How well masks agree with the truth: overlap by class, and where their borders are."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from attnlab.data.masks import IGNORED

TOLERANCE = 0.0075
"""Share of an image's diagonal that a border may be away from the true one: what Csurka et al.
("What is a good evaluation measure for semantic segmentation?", BMVC 2013) take."""


def overlap(confusion: Tensor) -> Tensor:
    """Intersection over union of each class, of a matrix of counts (true class, found class); NaN
    for a class that is neither there nor found."""
    counts = confusion.double()
    both = counts.diagonal()
    return both / (counts.sum(0) + counts.sum(1) - both)


def soft_dice(logits: Tensor, masks: Tensor) -> Tensor:
    """One minus Dice's coefficient of the probabilities (Milletari et al., 3DV 2016).

    It is taken over all pixels of the batch that count, and is the mean over the classes that the
    batch has: of a class that is not there, the coefficient says nothing.

    Args:
        logits: (N, classes, H, W).
        masks: (N, H, W).
    """
    known = masks != IGNORED
    classes = logits.shape[1]
    true = F.one_hot(masks.where(known, 0), classes).movedim(-1, 1) * known[:, None]
    found = logits.float().softmax(1) * known[:, None]
    over = (0, 2, 3)
    there = true.sum(over)
    dice = 2 * (found * true).sum(over) / (found.sum(over) + there).clamp_min(1e-7)
    present = there > 0
    return 1 - (dice * present).sum() / present.sum().clamp_min(1)


def border(labels: Tensor, number: int) -> Tensor:
    """The pixels of class `number` in (H, W) that have a neighbour of another class, above, below,
    left or right; pixels that do not count, and those beyond the image, are not another class."""
    inside = labels == number
    outside = (~inside & (labels != IGNORED)).float()[None, None]
    row = F.max_pool2d(outside, (1, 3), 1, (0, 1))
    column = F.max_pool2d(outside, (3, 1), 1, (1, 0))
    found: Tensor = inside & (row + column)[0, 0].bool()
    return found


def near(pixels: Tensor, distance: float) -> Tensor:
    """The pixels of (H, W) that are at most `distance` away from one of `pixels`."""
    reach = math.floor(distance)
    steps = torch.arange(-reach, reach + 1, device=pixels.device)
    disc = (steps[:, None] ** 2 + steps**2 <= distance**2).float()
    return F.conv2d(pixels.float()[None, None], disc[None, None], padding=reach)[0, 0] > 0.5


def border_score(found: Tensor, true: Tensor, classes: int) -> float | None:
    """How well the borders of masks (H, W) agree, from 0 to 1, the mean over the classes that have
    a border in either; None if none has one.

    Of each class it is the harmonic mean of two shares: of the found border that is near the true
    one, and of the true border that is near the found one.
    """
    found = found.where(true != IGNORED, IGNORED)
    distance = max(1.0, TOLERANCE * math.hypot(*true.shape))
    scores = []
    for number in range(classes):
        ours, theirs = border(found, number), border(true, number)
        if not (ours.any() or theirs.any()):
            continue
        right = (ours & near(theirs, distance)).sum() / ours.sum().clamp_min(1)
        seen = (theirs & near(ours, distance)).sum() / theirs.sum().clamp_min(1)
        scores.append(float(2 * right * seen / (right + seen)) if right + seen > 0 else 0.0)
    return sum(scores) / len(scores) if scores else None
