"""Images that are read while they are used, by worker processes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from attnlab._seeds import derive
from attnlab.data.augment import normalised
from attnlab.data.batches import Chunk
from attnlab.data.config import Augmentation
from attnlab.data.data import Batch, Data, Facts
from attnlab.networks.preprocessing import Interpolation

_TEST_CROP = 0.875
"""Of the short side, where training cuts random parts: 224 of 256, as is usual on ImageNet."""


class StreamData(Data):
    """Items (image, target) of two data sets; an image is Pillow's."""

    def __init__(
        self, facts: Facts, train: Dataset, test: Dataset, augmentation: Augmentation
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
        workers = min(8, (os.cpu_count() or 2) - 1)
        loader = DataLoader(
            view,
            batch_sampler=chunks,
            num_workers=workers,
            pin_memory=device.type == "cuda",
        )
        mean, std = (torch.tensor(v, device=device) for v in (self.facts.mean, self.facts.std))
        for images, targets in loader:
            moved = images.to(device, non_blocking=True)
            yield Batch(normalised(moved, mean, std), targets.to(device, non_blocking=True))


def fitted(
    size: int | tuple[int, int],
    short_side: int | None = None,
    interpolation: Interpolation = "bilinear",
) -> Any:
    """Short side resized to `short_side`, or to the crop's if None, and the centre cut out, as
    bytes."""
    from torchvision.transforms import InterpolationMode, v2

    resized = short_side or (size if isinstance(size, int) else max(size))
    mode = InterpolationMode(interpolation)
    resize = v2.Resize(resized, interpolation=mode, antialias=True)
    return v2.Compose([resize, v2.CenterCrop(size), v2.PILToTensor()])


def _augmented(augmentation: Augmentation, size: int) -> Any:
    from torchvision.transforms import v2

    if augmentation.crop == "resized":
        steps: list[Any] = [v2.RandomResizedCrop(size, antialias=True), v2.PILToTensor()]
    else:
        steps = [fitted(size)]
    if augmentation.crop == "padded":
        steps.append(v2.RandomCrop(size, padding=augmentation.crop_padding))
    return v2.Compose([*steps, v2.RandomHorizontalFlip(0.5 if augmentation.flip else 0.0)])


class _View(Dataset[tuple[Tensor, Any]]):
    """Images through a transform; each draws from a stream of its own, whichever worker reads."""

    def __init__(self, items: Dataset, transform: Any, seed: int) -> None:
        self.items, self.transform, self.seed = items, transform, seed

    def __getitem__(self, index: int) -> tuple[Tensor, Any]:
        image, target = self.items[index]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive(self.seed, index))
            return self.transform(image), target
