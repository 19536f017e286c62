"""The images of a run: bytes in memory where they fit, so that a batch is made in a moment."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attnlab._errors import InputError
from attnlab.train.augment import cropped, draw, normalised, padded
from attnlab.train.batches import Chunk
from attnlab.train.recipe import Recipe

Batch = tuple[Tensor, Tensor]
"""Normalised images (N, C, H, W) and their labels."""


@dataclass(frozen=True)
class Facts:
    """What is known of a data set before training."""

    name: str
    classes: int
    shape: tuple[int, int, int]
    """Channels, height and width of a test image."""
    train: int
    test: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    checksum: str
    """SHA-256 of pixels and labels; of names and sizes for folders that are not read whole."""


class Data(ABC):
    """Training and test images."""

    facts: Facts

    @abstractmethod
    def training(
        self, chunks: Sequence[Chunk], recipe: Recipe, seed: int, epoch: int, device: torch.device
    ) -> Iterator[Batch]:
        """One batch per chunk, augmented by the recipe."""

    @abstractmethod
    def testing(self, chunks: Sequence[Tensor], device: torch.device) -> Iterator[Batch]:
        """One batch per chunk, as it is."""


@dataclass
class Pixels:
    """Images (N, C, H, W) as bytes, and labels."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)


class MemoryData(Data):
    """Images that are held in memory, on the device that trains."""

    def __init__(
        self,
        name: str,
        train: Pixels,
        test: Pixels,
        classes: int,
        statistics: tuple[Sequence[float], Sequence[float]] | None = None,
        crop: int | None = None,
    ) -> None:
        check_pixels(train, classes, f"{name} (training)")
        check_pixels(test, classes, f"{name} (test)")
        mean, std = statistics or channel_statistics(train.images)
        channels, height, width = test.images.shape[1:]
        self._train, self._test = train, test
        self._crop = (crop, crop) if crop else tuple(train.images.shape[2:])
        self._border = -1
        self._bordered = train.images
        self.facts = Facts(
            name,
            classes,
            (channels, height, width),
            len(train),
            len(test),
            tuple(mean),
            tuple(std),
            _checksum(train, test),
        )

    def training(
        self, chunks: Sequence[Chunk], recipe: Recipe, seed: int, epoch: int, device: torch.device
    ) -> Iterator[Batch]:
        border = recipe.crop_padding if recipe.crop == "padded" else 0
        images, (mean, std) = self._with_border(border, device), self._statistics(device)
        height, width = self._crop
        draws = draw(recipe, len(self._train), images.shape[2] - height, seed, epoch)
        for chunk in chunks:
            # Numbers are drawn on the CPU, so that every device sees the same augmentation.
            mine = draws.of(chunk.images)
            chosen, top, left, mirrored = (t.to(device) for t in (chunk.images, *mine))
            crops = cropped(images, chosen, type(mine)(top, left, mirrored), (height, width))
            yield normalised(crops, mean, std), self._train.labels[chunk.images].to(device)

    def testing(self, chunks: Sequence[Tensor], device: torch.device) -> Iterator[Batch]:
        mean, std = self._statistics(device)
        for chosen in chunks:
            images = self._test.images[chosen].to(device)
            yield normalised(images, mean, std), self._test.labels[chosen].to(device)

    def _statistics(self, device: torch.device) -> tuple[Tensor, Tensor]:
        return (
            torch.tensor(self.facts.mean, device=device),
            torch.tensor(self.facts.std, device=device),
        )

    def _with_border(self, border: int, device: torch.device) -> Tensor:
        """All training images with their border, made once."""
        if border != self._border or self._bordered.device != device:
            self._border, self._bordered = border, padded(self._train.images, border).to(device)
        return self._bordered


def check_pixels(pixels: Pixels, classes: int, what: str) -> None:
    """Images of bytes and labels of existing classes, or an error that names the first wrong."""
    if pixels.images.dtype != torch.uint8 or pixels.images.ndim != 4:
        raise InputError(
            f"{what}: expected images as bytes (uint8), N×H×W×C or N×H×W, but got "
            f"{pixels.images.dtype} of shape {tuple(pixels.images.shape)}."
        )
    if len(pixels.images) != len(pixels.labels) or not len(pixels):
        raise InputError(
            f"{what}: expected as many labels as images, at least one, but got "
            f"{len(pixels.images)} images and {len(pixels.labels)} labels."
        )
    wrong = ((pixels.labels < 0) | (pixels.labels >= classes)).nonzero().flatten()
    if len(wrong):
        first = int(wrong[0])
        raise InputError(
            f"{what}: expected labels from 0 to {classes - 1} but label {int(pixels.labels[first])}"
            f" of image {first} is outside ({len(wrong)} of {len(pixels)} are)."
        )


def channel_statistics(images: Tensor) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of each channel, of pixels 0 to 1, exact."""
    counts = torch.stack(
        [torch.bincount(channel.flatten().int(), minlength=256) for channel in images.unbind(1)]
    ).double()
    values = torch.arange(256).double() / 255
    total = counts.sum(1)
    mean = counts @ values / total
    variance = counts @ values**2 / total - mean**2
    return mean.tolist(), variance.clamp_min(1e-12).sqrt().tolist()


def subset(pixels: Pixels, number: int | None, what: str) -> Pixels:
    """`number` images, the same share of every class, the first of each in the given order."""
    if number is None or number == len(pixels):
        return pixels
    if number > len(pixels):
        raise InputError(f"{what} has {len(pixels)} images but a subset of {number} was asked for.")
    by_class = torch.argsort(pixels.labels, stable=True)
    counts = torch.bincount(pixels.labels)
    starts = counts.cumsum(0) - counts
    place = torch.empty(len(pixels))
    place[by_class] = (
        torch.arange(len(pixels)) - starts.repeat_interleave(counts)
    ) / counts.repeat_interleave(counts)
    # The place within its class, from 0 to 1: taking the smallest takes the same share of each.
    kept = torch.argsort(place, stable=True)[:number].sort().values
    return Pixels(pixels.images[kept], pixels.labels[kept])


def _checksum(*parts: Pixels) -> str:
    digest = hashlib.sha256()
    for pixels in parts:
        digest.update(repr(tuple(pixels.images.shape)).encode())
        digest.update(pixels.images.contiguous().numpy().data)
        digest.update(pixels.labels.to(torch.int64).contiguous().numpy().data)
    return digest.hexdigest()
