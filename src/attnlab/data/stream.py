"""Images that are read while they are used: divided folders by worker processes, undivided ones to
measure a network on, not to train it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from attnlab._checksums import files_checksum
from attnlab._errors import InputError
from attnlab._seeds import derive
from attnlab.data.augment import normalised
from attnlab.data.batches import Batch, Chunk, Data, Facts
from attnlab.data.config import Augmentation
from attnlab.data.pictures import SUFFIXES, FoundImages, decoded, find_images, left_out
from attnlab.networks.preprocessing import Interpolation, Preprocessing

_TEST_CROP = 0.875
"""The share of the short side that testing cuts out if training cuts random parts: 224 of 256, as
is usual on ImageNet."""


Item = TypeVar("Item")
Fit = Callable[[Image.Image], Tensor]
"""Makes an image (C, H, W) of bytes of Pillow's."""
Opened = Dataset[tuple[Image.Image, int]]
"""Images with their class."""


def read_batches(
    items: Dataset[Item], chunks: Sequence[Tensor], *, in_memory: bool
) -> Iterator[list[Item]]:
    """One list of items for each chunk of their numbers, read by worker processes unless they are
    in memory already."""
    # With a generator of its own a loader draws no number of the network's, which a run that is
    # taken up in the middle of an epoch would draw a second time.
    return iter(
        DataLoader(
            items,
            batch_sampler=[chunk.tolist() for chunk in chunks],
            num_workers=0 if in_memory else _workers(),
            collate_fn=list,
            generator=torch.Generator(),
        )
    )


def _workers() -> int:
    """One core is left to the training; more than eight readers wait for the disk."""
    return min(8, (os.cpu_count() or 2) - 1)


class StreamData(Data):
    """Images with their class, opened when they are used."""

    def __init__(
        self, facts: Facts, train: Opened, test: Opened, augmentation: Augmentation
    ) -> None:
        self.facts = facts
        self._train, self._test, self._augmentation = train, test, augmentation

    def training(
        self, chunks: Sequence[Chunk], seed: int, epoch: int, device: torch.device
    ) -> Iterator[Batch]:
        transform = _augmented(self._augmentation, self.facts.shape[1])
        view = _View(self._train, transform, derive(seed, "image", epoch))
        return self._batches(view, [chunk.images.tolist() for chunk in chunks], device)

    def testing(self, chunks: Sequence[Tensor], device: torch.device) -> Iterator[Batch]:
        share = _TEST_CROP if self._augmentation.crop == "resized" else 1.0
        size = self.facts.shape[1]
        view = _View(self._test, fitted(size, round(size / share)), 0)
        return self._batches(view, [chunk.tolist() for chunk in chunks], device)

    def _batches(
        self, view: _View, chunks: list[list[int]], device: torch.device
    ) -> Iterator[Batch]:
        loader = DataLoader(
            view,
            batch_sampler=chunks,
            num_workers=_workers(),
            pin_memory=device.type == "cuda",
            generator=torch.Generator(),
        )
        mean, std = self.facts.statistics(device)
        for images, targets in loader:
            moved = images.to(device, non_blocking=True)
            yield Batch(normalised(moved, mean, std), targets.to(device, non_blocking=True))


def fitted(
    size: int | tuple[int, int],
    short_side: int | None = None,
    interpolation: Interpolation = "bilinear",
) -> Fit:
    """Return what resizes the short side to `short_side`, or to the crop's if None, and cuts the
    centre out, as bytes."""
    from torchvision.transforms import InterpolationMode, v2

    resized = short_side or (size if isinstance(size, int) else max(size))
    mode = InterpolationMode(interpolation)
    resize = v2.Resize(resized, interpolation=mode, antialias=True)
    return v2.Compose([resize, v2.CenterCrop(size), v2.PILToTensor()])


def _augmented(augmentation: Augmentation, size: int) -> Fit:
    from torchvision.transforms import v2

    if augmentation.crop == "resized":
        steps: list[Callable] = [v2.RandomResizedCrop(size, antialias=True), v2.PILToTensor()]
    else:
        steps = [fitted(size)]
    if augmentation.crop == "padded":
        steps.append(v2.RandomCrop(size, padding=augmentation.crop_padding))
    return v2.Compose([*steps, v2.RandomHorizontalFlip(0.5 if augmentation.flip else 0.0)])


class _View(Dataset[tuple[Tensor, int]]):
    """Images through a transform; each draws from its own stream, whichever worker reads."""

    def __init__(self, items: Opened, transform: Fit, seed: int) -> None:
        self.items, self.transform, self.seed = items, transform, seed

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image, target = self.items[index]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive(self.seed, index))
            return self.transform(image), target


class UndividedData(Data):
    """Every image is a test image, and a training image too: who chooses on some must judge on
    others, see `divided`. A label is the number of the image's folder."""

    divided = False

    def __init__(self, folder: Path, preprocessing: Preprocessing) -> None:
        channels, height, width = preprocessing.size
        if channels not in (1, 3):
            raise InputError(
                f"The network takes images of {channels} channels, and photographs have 3. "
                f"Expected a network of 1 or 3 channels."
            )
        found = _found(folder)
        paths = found.images
        classes = sorted({path.parent.relative_to(folder).as_posix() for path in paths})
        self._files = [
            (path, classes.index(path.parent.relative_to(folder).as_posix())) for path in paths
        ]
        self._mode = "L" if channels == 1 else "RGB"
        self._fit = fitted((height, width), preprocessing.short_side, preprocessing.interpolation)
        self.facts = Facts(
            folder.resolve().name,
            "class" if len(classes) > 1 else "nothing",
            len(classes) if len(classes) > 1 else 0,
            preprocessing.size,
            len(paths),
            len(paths),
            preprocessing.mean,
            preprocessing.std,
            files_checksum(folder, paths),
            notes=tuple(left_out(folder, folder.resolve().name, [found])),
        )

    def training(
        self, chunks: Sequence[Chunk], seed: int, epoch: int, device: torch.device
    ) -> Iterator[Batch]:
        del seed, epoch  # nothing is trained on them, so nothing is augmented
        return self.testing([chunk.images for chunk in chunks], device)

    def testing(self, chunks: Sequence[Tensor], device: torch.device) -> Iterator[Batch]:
        mean, std = self.facts.statistics(device)
        for chosen in chunks:
            files = [self._files[place] for place in chosen.tolist()]
            images = torch.stack([self._fit(decoded(path, self._mode)) for path, _ in files])
            labels = torch.tensor([label for _, label in files], device=device)
            yield Batch(normalised(images.to(device), mean, std), labels)


def _found(folder: Path) -> FoundImages:
    found = find_images(folder)
    if not found.images:
        raise InputError(
            f"There is no image in {str(folder)!r}. Expected files that end in "
            f"{', '.join(SUFFIXES)}, in the folder or in one folder per class."
        )
    return found
