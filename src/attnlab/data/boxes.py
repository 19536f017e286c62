"""Images with boxes: any number of objects in each, images of any size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import Dataset

from attnlab.data.augment import draw
from attnlab.data.batches import Batch, Chunk, Data, Facts
from attnlab.data.config import Augmentation
from attnlab.data.pictures import image_bytes
from attnlab.data.stream import read_batches

Target = dict[str, Tensor]
"""As torchvision's detectors and torchmetrics take it: `boxes` (number, 4) with left, top, right
and bottom in pixels, `labels` from 1 (0 is the background), `area` and `iscrowd` (number each)."""

_Item = tuple[Tensor, Target]


@dataclass(frozen=True)
class BoxImage:
    """One image and its objects."""

    image: Tensor | Path
    """Bytes (3, H, W), or the file that has them."""
    target: Target
    outlines: tuple[Tensor, ...] = ()
    """The border of each object (corners, 2), x and y in pixels; empty if it is not known."""
    points: Tensor | None = None
    """Points of each object (number, points, 2 or 3): x and y in pixels and, if the data have it,
    visibility, see `attnlab.data.batches.Points`; None if they are not known."""
    as_shown: bool = False
    """Whether boxes are of the image as it is shown, turned by its EXIF orientation."""

    def pixels(self) -> Tensor:
        """The image as bytes (3, H, W)."""
        return image_bytes(self.image, as_shown=self.as_shown)


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
        self.train, self.test, self.augmentation = train, test, augmentation

    def training(
        self, chunks: Sequence[Chunk], seed: int, epoch: int, device: torch.device
    ) -> Iterator[Batch]:
        mirrored = draw(self.augmentation, len(self.train), 0, seed, epoch).mirrored
        for items in self._read(self.train, [chunk.images for chunk in chunks], mirrored):
            yield _moved([(image, _without_crowds(target)) for image, target in items], device)

    def testing(self, chunks: Sequence[Tensor], device: torch.device) -> Iterator[Batch]:
        for items in self._read(self.test, chunks, torch.zeros(len(self.test)).bool()):
            yield _moved(items, device)

    def _read(
        self, images: Sequence[BoxImage], chunks: Sequence[Tensor], flips: Tensor
    ) -> Iterator[list[_Item]]:
        in_memory = all(isinstance(each.image, Tensor) for each in images)
        return read_batches(_View(images, flips), chunks, in_memory=in_memory)


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


def _without_crowds(target: Target) -> Target:
    objects = target["iscrowd"] == 0
    return {name: values[objects] for name, values in target.items()}


def _moved(items: Sequence[_Item], device: torch.device) -> Batch:
    return Batch(
        [image.to(device).float().div_(255) for image, _ in items],
        [{name: values.to(device) for name, values in target.items()} for _, target in items],
    )


class _View(Dataset[_Item]):
    def __init__(self, images: Sequence[BoxImage], flips: Tensor) -> None:
        self.images, self.flips = images, flips

    def __getitem__(self, index: int) -> _Item:
        item = self.images[index]
        image = item.pixels()
        return mirrored(image, item.target) if self.flips[index] else (image, item.target)
