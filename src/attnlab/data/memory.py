"""Images as bytes in memory, so that a batch is made in a moment."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from attnlab._errors import InputError
from attnlab._words import listed
from attnlab.data.augment import cropped, draw, normalised, padded
from attnlab.data.batches import Batch, Chunk, Data, Facts, Targets
from attnlab.data.config import Augmentation

MOST_COLOURS = 4
"""Channels of a photograph, with its transparency. An image is not as low, so a first axis of at
most this many and a last one of more are channels first."""
MEMORY_LIMIT = 2**30
"""Bytes of pixels up to which images with boxes or masks, each of its own size, are read into
memory."""
Statistics = tuple[Sequence[float], Sequence[float]]
"""Mean and standard deviation of each channel, of pixels 0 to 1."""


@dataclass
class Pixels:
    """Images (N, C, H, W) as bytes, and what is known of them."""

    images: Tensor
    targets: Tensor
    """Classes (N), whole numbers; labels (N, number), whole numbers 0 and 1; values (N, number),
    floating point; (N, 0) where nothing is known."""
    notes: tuple[str, ...] = ()
    """What was left out when they were read."""

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def kind(self) -> Targets:
        if self.targets.ndim == 2 and self.targets.shape[1] == 0:
            return "nothing"
        if self.targets.is_floating_point():
            return "values"
        return "class" if self.targets.ndim == 1 else "labels"


class MemoryData(Data):
    """Images that are held in memory, on the device that trains."""

    def __init__(
        self,
        name: str,
        train: Pixels,
        test: Pixels,
        outputs: int,
        checksum: str,
        augmentation: Augmentation,
        statistics: Statistics | None = None,
        crop: int | None = None,
        notes: tuple[str, ...] = (),
        random: bool = False,
    ) -> None:
        check_pixels(train, outputs, f"{name} (training)")
        check_pixels(test, outputs, f"{name} (test)")
        _check_alike(train, test, name)
        mean, std = statistics or channel_statistics(train.images)
        channels, height, width = test.images.shape[1:]
        self._train, self._test, self._augmentation = train, test, augmentation
        self._crop = (crop, crop) if crop else tuple(train.images.shape[2:])
        self._bordered = train.images
        self.facts = Facts(
            name,
            train.kind,
            outputs,
            (channels, height, width),
            len(train),
            len(test),
            tuple(mean),
            tuple(std),
            checksum,
            notes=notes,
            chance=commonest_share(test.targets) if test.kind == "class" else None,
            random=random,
        )

    def training(
        self, chunks: Sequence[Chunk], seed: int, epoch: int, device: torch.device
    ) -> Iterator[Batch]:
        images, (mean, std) = self._with_border(device), self.facts.statistics(device)
        height, width = self._crop
        offsets = images.shape[2] - height
        draws = draw(self._augmentation, len(self._train), offsets, seed, epoch)
        for chunk in chunks:
            # Numbers are drawn on the CPU, so that every device sees the same augmentation.
            mine = draws.of(chunk.images)
            chosen, top, left, mirrored = (t.to(device) for t in (chunk.images, *mine))
            crops = cropped(images, chosen, type(mine)(top, left, mirrored), (height, width))
            targets = self._train.targets[chunk.images].to(device)
            yield Batch(normalised(crops, mean, std), targets)

    def testing(self, chunks: Sequence[Tensor], device: torch.device) -> Iterator[Batch]:
        mean, std = self.facts.statistics(device)
        for chosen in chunks:
            images = self._test.images[chosen].to(device)
            yield Batch(normalised(images, mean, std), self._test.targets[chosen].to(device))

    def _with_border(self, device: torch.device) -> Tensor:
        """All training images with their border, made once."""
        padding = self._augmentation.crop_padding if self._augmentation.crop == "padded" else 0
        if self._bordered.device != device or self._bordered is self._train.images:
            self._bordered = padded(self._train.images, padding).to(device)
        return self._bordered


def as_pixels(images: np.ndarray, targets: np.ndarray, what: str) -> Pixels:
    """N×H×W×C or N×H×W bytes → N×C×H×W; grey images get three equal channels.

    Targets are one whole number per image (a class), a row of 0 and 1 (labels), or a row of
    floating-point numbers (values).
    """
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or images.shape[-1:] == (2,):
        raise InputError(
            f"{what}: expected images as bytes (uint8), N×H×W×C or N×H×W, but got {images.dtype} "
            f"of shape {images.shape}."
        )
    if images.ndim == 4 and images.shape[1] <= MOST_COLOURS < images.shape[3]:
        raise InputError(
            f"{what}: expected images N×H×W×C but got the shape {images.shape}, which has its "
            f"channels first. Store them as images.transpose(0, 2, 3, 1)."
        )
    whole = np.issubdtype(targets.dtype, np.integer)
    if not (
        (whole and targets.ndim in (1, 2)) or (targets.dtype.kind == "f" and targets.ndim == 2)
    ):
        raise InputError(
            f"{what}: expected one whole number per image as label (or a row of 0 and 1 as labels, "
            f"or a row of floating-point numbers as values) but got {targets.dtype} of shape "
            f"{targets.shape}."
        )
    pixels = torch.from_numpy(np.ascontiguousarray(images))
    pixels = pixels[..., None] if pixels.ndim == 3 else pixels
    pixels = pixels.permute(0, 3, 1, 2)
    if pixels.shape[1] == 1:
        pixels = pixels.expand(-1, 3, -1, -1)
    known = targets.astype(np.int64 if whole else np.float32)
    return Pixels(pixels.contiguous(), torch.from_numpy(known))


def check_pixels(pixels: Pixels, outputs: int, what: str) -> None:
    """Images of bytes and targets that exist, or an error that names the first wrong."""
    if pixels.images.dtype != torch.uint8 or pixels.images.ndim != 4:
        raise InputError(
            f"{what}: expected images as bytes (uint8), N×H×W×C or N×H×W, but got "
            f"{pixels.images.dtype} of shape {tuple(pixels.images.shape)}."
        )
    if len(pixels.images) != len(pixels.targets) or not len(pixels):
        raise InputError(
            f"{what}: expected as many labels as images, at least one, but got "
            f"{len(pixels.images)} images and {len(pixels.targets)} labels."
        )
    targets = pixels.targets
    if pixels.kind == "class":
        wrong, expected = (targets < 0) | (targets >= outputs), f"labels from 0 to {outputs - 1}"
    elif pixels.kind == "labels":
        wrong, expected = ((targets != 0) & (targets != 1)).any(1), "labels of 0 and 1"
    else:
        wrong, expected = ~targets.isfinite().all(1), "values that are finite"
    places = wrong.nonzero().flatten()
    if len(places):
        first = int(places[0])
        raise InputError(
            f"{what}: expected {expected} but label {targets[first].tolist()} of image {first} is "
            f"outside ({len(places)} of {len(pixels)} are)."
        )


def _check_alike(train: Pixels, test: Pixels, name: str) -> None:
    """Refuse test images of another kind than the training images."""
    if train.kind != test.kind:
        raise InputError(
            f"{name}: expected test images with a {train.kind} like the training images but "
            f"got {test.kind}."
        )
    if train.images.shape[1] != test.images.shape[1]:
        raise InputError(
            f"{name}: expected test images with {train.images.shape[1]} channels like the "
            f"training images but got {test.images.shape[1]}."
        )


def number_of_outputs(train: Pixels, what: str) -> int:
    """Return how many classes, labels or values there are, by the training images."""
    if train.kind != "class":
        return int(train.targets.shape[1])
    return number_of_classes(train.targets, what)


def number_of_classes(targets: Tensor, what: str) -> int:
    """Return how many classes there are, by the classes of the training images."""
    images = len(targets)
    largest = int(targets.max()) if images else -1
    if largest >= images and images:
        raise InputError(
            f"{what}: label {largest} of image {int(targets.argmax())} would mean "
            f"{largest + 1:,} classes, more than the {images:,} images. Expected classes that "
            f"are numbered from 0, each with at least one image."
        )
    found = targets.unique()
    if images and int(found[0]) >= 0 and len(found) <= largest:
        there = set(found.tolist())
        free = [number for number in range(largest) if number not in there]
        raise InputError(
            f"{what}: labels {listed(sorted(there))} would make {largest + 1} classes, but no "
            f"image has label {listed(free)}. Expected classes that are numbered from 0 without a "
            f"gap: numpy.unique(labels, return_inverse=True) numbers them so."
        )
    return largest + 1


def lacking_classes(
    train: Tensor, test: Tensor, names: Sequence[str], subsets: tuple[int | None, int | None]
) -> tuple[str, ...]:
    """A sentence for each part of the data that has no image of some class, given the classes of
    the images, the names of all and how many images of a part were asked for."""
    notes = []
    parts = (("training", "train_subset", train), ("test", "test_subset", test))
    for (part, option, targets), subset_ in zip(parts, subsets, strict=True):
        there = set(targets.unique().tolist())
        missing = [name for number, name in enumerate(names) if number not in there]
        if missing:
            asked = "" if subset_ is None else f" ({option} = {subset_})"
            has = "has" if len(missing) == 1 else "have"
            notes.append(
                f"{len(missing)} of {len(names)} classes {has} no {part} image{asked}: "
                f"{listed(missing)}."
            )
    return tuple(notes)


def commonest_share(classes: Tensor) -> float:
    """The share of images that has the commonest class."""
    return float(torch.bincount(classes).max()) / len(classes)


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
    """`number` images, the same share of every class, the first of each in the given order; where
    images have no class, the first ones."""
    if number is None or number == len(pixels):
        return pixels
    if number > len(pixels):
        raise InputError(f"{what} has {len(pixels)} images but a subset of {number} was asked for.")
    if pixels.kind != "class":
        return replace(pixels, images=pixels.images[:number], targets=pixels.targets[:number])
    by_class = torch.argsort(pixels.targets, stable=True)
    counts = torch.bincount(pixels.targets)
    starts = counts.cumsum(0) - counts
    place = torch.empty(len(pixels))
    place[by_class] = (
        torch.arange(len(pixels)) - starts.repeat_interleave(counts)
    ) / counts.repeat_interleave(counts)
    # The place within its class, from 0 to 1: taking the smallest takes the same share of each.
    kept = torch.argsort(place, stable=True)[:number].sort().values
    return replace(pixels, images=pixels.images[kept], targets=pixels.targets[kept])


def pixel_checksum(*parts: Pixels) -> str:
    """SHA-256 of pixels and targets."""
    digest = hashlib.sha256()
    for pixels in parts:
        digest.update(repr(tuple(pixels.images.shape)).encode())
        digest.update(pixels.images.contiguous().numpy().data)
        digest.update(pixels.targets.contiguous().numpy().data)
    return digest.hexdigest()
