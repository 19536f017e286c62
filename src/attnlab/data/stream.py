"""Images that are read while they are used: divided ones by worker processes, undivided ones to
measure a network on, not to train it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from attnlab._checksums import files_checksum
from attnlab._errors import InputError
from attnlab._seeds import derive
from attnlab.data.augment import normalised
from attnlab.data.batches import Batch, Chunk, Data, Facts, shuffled
from attnlab.data.config import Augmentation
from attnlab.data.decoding import (
    augmented_bytes,
    drawing,
    drawing_all,
    policy_of,
    random_part,
    whole_picture,
)
from attnlab.data.pictures import SUFFIXES, FoundImages, decoded, find_images, left_out
from attnlab.data.samples import Samples
from attnlab.data.workers import Workers, loader, number_of_workers
from attnlab.networks.preprocessing import Interpolation, Preprocessing

_TEST_CROP = 0.875
"""The share of the short side that testing cuts out if training cuts random parts: 224 of 256, as
is usual on ImageNet."""


Item = TypeVar("Item")
Fit = Callable[[Image.Image], Tensor]
"""Makes an image (C, H, W) of bytes of Pillow's."""


def read_batches(
    items: Dataset[Item], chunks: Sequence[Tensor], *, in_memory: bool
) -> Iterator[list[Item]]:
    """One list of items for each chunk of their numbers, read by worker processes unless they are
    in memory already."""
    workers = 0 if in_memory else number_of_workers()
    asked = [chunk.tolist() for chunk in chunks]
    return iter(loader(items, asked, workers=workers, collate=list))


class StreamData(Data):
    """Images with their class, read and decoded when they are used, by processes that live as long
    as these data."""

    streams = True

    def __init__(
        self,
        facts: Facts,
        train: Samples,
        test: Samples,
        augmentation: Augmentation,
        tested: Fit,
        together: int | None = None,
    ) -> None:
        """`tested` makes a test image; `together` is of how many files images are shuffled at a
        time, None of all."""
        self.facts = facts
        self._train, self._test, self._together = train, test, together
        self._workers: Workers[_Wanted, list[Tensor]] = Workers(
            _Decoded(train, test, augmentation, tested, facts), _stacked
        )

    def order(self, seed: int, epoch: int) -> Tensor:
        groups = None if self._together is None else self._train.groups()
        return shuffled(len(self._train), seed, epoch, groups, self._together or 1)

    def training(
        self, chunks: Sequence[Chunk], seed: int, epoch: int, device: torch.device
    ) -> Iterator[Batch]:
        drawn = derive(seed, "image", epoch)
        wanted = [[_Wanted(n, drawn) for n in chunk.images.tolist()] for chunk in chunks]
        return self._batches(wanted, device)

    def testing(self, chunks: Sequence[Tensor], device: torch.device) -> Iterator[Batch]:
        return self._batches(
            [[_Wanted(n, None) for n in chunk.tolist()] for chunk in chunks], device
        )

    def _batches(self, wanted: list[list[_Wanted]], device: torch.device) -> Iterator[Batch]:
        mean, std = self.facts.statistics(device)
        for images, targets in self._workers.read(wanted, pinned=device.type == "cuda"):
            moved = images.to(device, non_blocking=True)
            yield Batch(normalised(moved, mean, std), targets.to(device, non_blocking=True))


class _Wanted(NamedTuple):
    """An image that a worker is asked for."""

    number: int
    seed: int | None
    """From which a training image draws; None of a test image."""


class _Decoded(Dataset[tuple[Tensor, int]]):
    """Images as bytes (3, H, W); each draws from its own stream, whichever worker reads."""

    def __init__(
        self,
        train: Samples,
        test: Samples,
        augmentation: Augmentation,
        tested: Fit,
        facts: Facts,
    ) -> None:
        size = (facts.shape[1], facts.shape[2])
        self.train, self.test, self.tested = train, test, tested
        self.parts, self.flip, self.size = augmentation.crop == "resized", augmentation.flip, size
        name = augmentation.policy
        self.policy = None if name is None else policy_of(name, size, facts.mean)
        self.trained = _augmented(augmentation, tested, size)

    def __getitems__(self, wanted: Sequence[_Wanted]) -> list[tuple[Tensor, int]]:
        """A whole batch, since an address answers many requests in the time of one."""
        samples = self.test if wanted[0].seed is None else self.train
        contents = samples.read([each.number for each in wanted])
        return [
            (
                self._image(samples.name(each.number), each, content),
                int(samples.labels[each.number]),
            )
            for each, content in zip(wanted, contents, strict=True)
        ]

    def _image(self, name: str, wanted: _Wanted, content: bytes) -> Tensor:
        if wanted.seed is None:
            return self.tested(whole_picture(content, name))
        seed = derive(wanted.seed, wanted.number)
        with drawing(seed):
            if self.parts:
                pixels = random_part(content, name, self.size, self.flip)
            else:
                pixels = self.trained(whole_picture(content, name))
        if self.policy is None:
            return pixels
        with drawing_all(derive(seed, "policy")):
            return augmented_bytes(self.policy, pixels)


def _stacked(items: list[tuple[Tensor, int]]) -> list[Tensor]:
    images, targets = zip(*items, strict=True)
    return [torch.stack(images), torch.tensor(targets)]


def test_fit(preprocessing: Preprocessing, augmentation: Augmentation) -> Fit:
    """How a test image is made: as a network's own `preprocessing` says; if that is the whole image
    and training cuts random parts, the usual share is cut out."""
    usual = augmentation.crop == "resized" and preprocessing.crop == 1
    side = max(preprocessing.size[1:])
    short = round(side / _TEST_CROP) if usual else preprocessing.short_side
    return fitted(preprocessing.size[1:], short, preprocessing.interpolation)


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


def _augmented(augmentation: Augmentation, fit: Fit, size: tuple[int, int]) -> Fit:
    """How a training image is made of a whole one."""
    from torchvision.transforms import v2

    steps: list[Callable] = [fit]
    if augmentation.crop == "padded":
        steps.append(v2.RandomCrop(size, padding=augmentation.crop_padding))
    return v2.Compose([*steps, v2.RandomHorizontalFlip(0.5 if augmentation.flip else 0.0)])


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
