"""Augmentation of whole batches in memory: crop, mirror, normalise, with no loop over images."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from attnlab._seeds import stream
from attnlab.data.config import Augmentation


class Draws(NamedTuple):
    """What was drawn for each image of an epoch."""

    top: Tensor
    left: Tensor
    mirrored: Tensor

    def of(self, images: Tensor) -> Draws:
        """The draws of some images, by number."""
        return Draws(self.top[images], self.left[images], self.mirrored[images])


def draw(augmentation: Augmentation, images: int, offsets: int, seed: int, epoch: int) -> Draws:
    """Offsets in [0, `offsets`] and mirrors for all images of an epoch at once, so that they do
    not depend on the batch size or on which process an image goes to."""
    numbers = stream(seed, "augmentation", epoch)
    top, left = torch.randint(offsets + 1, (2, images), generator=numbers)
    mirrored = torch.rand(images, generator=numbers) < (0.5 if augmentation.flip else 0.0)
    return Draws(top, left, mirrored)


def padded(images: Tensor, padding: int) -> Tensor:
    """Images (N, C, H, W) with a black border, as torchvision's RandomCrop makes it."""
    return F.pad(images, (padding,) * 4) if padding else images


def cropped(images: Tensor, chosen: Tensor, draws: Draws, side: tuple[int, int]) -> Tensor:
    """The crop of `side` at each image's offset, mirrored where drawn, in one gather."""
    windows = images.unfold(2, side[0], 1).unfold(3, side[1], 1)
    crops = windows[chosen, :, draws.top, draws.left]
    return torch.where(draws.mirrored[:, None, None, None], crops.flip(-1), crops)


def normalised(images: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Pixels 0 to 255 → (pixel / 255 − mean) / std, in float32."""
    scale = (1 / (255 * std)).view(-1, 1, 1)
    shift = (-mean / std).view(-1, 1, 1)
    return images.to(torch.float32).mul_(scale).add_(shift)
