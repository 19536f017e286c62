"""Images with boxes: any number of objects in each, images of any size."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from attnlab.data.augment import draw
from attnlab.data.batches import Batch, Chunk, Data, Facts
from attnlab.data.config import Augmentation
from attnlab.data.pictures import decoded

Target = dict[str, Tensor]
"""As torchvision's detectors and torchmetrics take it: `boxes` (number, 4) with left, top, right
and bottom in pixels, `labels` from 1 (0 is the background), `area` and `iscrowd` (number each)."""


@dataclass(frozen=True)
class BoxImage:
    """One image and its objects."""

    image: Tensor | Path
    """Bytes (3, H, W), or the file that has them."""
    target: Target

    def pixels(self) -> Tensor:
        if isinstance(self.image, Tensor):
            return self.image
        from torchvision.transforms.v2.functional import pil_to_tensor

        found: Tensor = pil_to_tensor(decoded(self.image))
        return found


class BoxData(Data):
    """A batch is a list of images, pixels 0 to 1, and a list of targets. Crowds, which are regions
    and not objects, are not trained on; in testing they say what does not count."""

    def __init__(
        self,
        facts: Facts,
        train: Sequence[BoxImage],
        test: Sequence[BoxImage],
        augmentation: Augmentation,
    ) -> None:
        self.facts = facts
        self._train, self._test, self._augmentation = train, test, augmentation

    def training(
        self, chunks: Sequence[Chunk], seed: int, epoch: int, device: torch.device
    ) -> Iterator[Batch]:
        mirrored = draw(self._augmentation, len(self._train), 0, seed, epoch).mirrored
        for inputs, targets in _batches(self._train, [chunk.images for chunk in chunks], mirrored):
            yield _moved(inputs, [_without_crowds(target) for target in targets], device)

    def testing(self, chunks: Sequence[Tensor], device: torch.device) -> Iterator[Batch]:
        for inputs, targets in _batches(self._test, chunks, torch.zeros(len(self._test)).bool()):
            yield _moved(inputs, targets, device)


def mirrored(image: Tensor, target: Target) -> tuple[Tensor, Target]:
    """Exchange left and right of an image and of its boxes."""
    left, top, right, bottom = target["boxes"].unbind(1)
    width = image.shape[2]
    boxes = torch.stack([width - right, top, width - left, bottom], 1)
    return image.flip(2), {**target, "boxes": boxes}


def as_target(
    boxes: Tensor, labels: Tensor, area: Tensor | None = None, crowd: Tensor | None = None
) -> Target:
    """Return a target; the area of an object is that of its box unless it is known."""
    boxes = boxes.float().reshape(-1, 4)
    sides = boxes[:, 2:] - boxes[:, :2]
    return {
        "boxes": boxes,
        "labels": labels.long(),
        "area": sides.prod(1) if area is None else area.float(),
        "iscrowd": torch.zeros(len(boxes)).long() if crowd is None else crowd.long(),
    }


def _batches(
    images: Sequence[BoxImage], chunks: Sequence[Tensor], flips: Tensor
) -> Iterator[list[list]]:
    in_memory = all(isinstance(each.image, Tensor) for each in images)
    return iter(
        DataLoader(
            _View(images, flips),
            batch_sampler=[chunk.tolist() for chunk in chunks],
            num_workers=0 if in_memory else min(8, (os.cpu_count() or 2) - 1),
            collate_fn=_transposed,
        )
    )


def _transposed(items: list[tuple[Tensor, Target]]) -> list[list]:
    return [list(each) for each in zip(*items, strict=True)]


def _without_crowds(target: Target) -> Target:
    objects = target["iscrowd"] == 0
    return {name: values[objects] for name, values in target.items()}


def _moved(images: list[Tensor], targets: list[Target], device: torch.device) -> Batch:
    return Batch(
        [image.to(device).float().div_(255) for image in images],
        [{name: values.to(device) for name, values in target.items()} for target in targets],
    )


class _View(Dataset[tuple[Tensor, Target]]):
    def __init__(self, images: Sequence[BoxImage], flips: Tensor) -> None:
        self.images, self.flips = images, flips

    def __getitem__(self, index: int) -> tuple[Tensor, Target]:
        item = self.images[index]
        image = item.pixels()
        return mirrored(image, item.target) if self.flips[index] else (image, item.target)
