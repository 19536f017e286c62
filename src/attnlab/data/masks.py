"""Images with a class for every pixel, of any size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import Dataset

from attnlab._errors import OptionError
from attnlab.data.augment import draw, normalised
from attnlab.data.batches import Batch, Chunk, Data, Facts
from attnlab.data.config import Augmentation
from attnlab.data.pictures import ImageRow, class_numbers, image_bytes
from attnlab.data.stream import read_batches

IGNORED = 255
"""The number of pixels whose class does not count, as VOC and Cityscapes have it."""
_PLACES = 2**20
"""Places of a crop are drawn as one of this many and scaled to the image: the draws of an epoch do
not depend on the sizes of the images."""


@dataclass(frozen=True)
class MaskImage:
    """One image and the class of each of its pixels."""

    image: Tensor | Path | ImageRow
    """Bytes (3, H, W), or the file or row that has them."""
    mask: Tensor | Path | ImageRow
    """Bytes (H, W), or the file or row that has them: a class each, or `IGNORED`."""
    as_shown: bool = False
    """Whether the mask is of the image as it is shown, turned by its EXIF orientation."""

    def pixels(self) -> Tensor:
        """The image as bytes (3, H, W)."""
        return image_bytes(self.image, as_shown=self.as_shown)

    def classes(self) -> Tensor:
        """The mask as bytes (H, W)."""
        if isinstance(self.mask, Tensor):
            return self.mask
        return torch.from_numpy(class_numbers(self.mask))


class MaskData(Data):
    """Training batches are crops of one size, mirrored by chance. Test images are whole: a batch is
    a tensor if they have one size, else a list."""

    def __init__(
        self,
        facts: Facts,
        train: Sequence[MaskImage],
        test: Sequence[MaskImage],
        augmentation: Augmentation,
        side: tuple[int, int] | None = None,
    ) -> None:
        """`side` is the size of the crops; None if all training images have that of `facts`."""
        if augmentation.crop == "resized":
            raise OptionError(
                "crop = 'resized' is for data 'folder' only. With masks use crop = 'padded', a "
                "random part of data.size, or 'none'."
            )
        if augmentation.transform is not None:
            raise OptionError("A transform would move pixels and not masks: masks take none.")
        self.facts = facts
        self._train, self._test, self._augmentation = train, test, augmentation
        self._side = side or (facts.shape[1], facts.shape[2])

    def training(
        self, chunks: Sequence[Chunk], seed: int, epoch: int, device: torch.device
    ) -> Iterator[Batch]:
        draws = draw(self._augmentation, len(self._train), _PLACES, seed, epoch)
        padding = self._augmentation.crop_padding if self._augmentation.crop == "padded" else 0
        places = torch.stack([draws.top, draws.left], 1)
        view = _Crops(self._train, self._side, padding, places, draws.mirrored)
        mean, std = self.facts.statistics(device)
        for items in _read(view, [chunk.images for chunk in chunks]):
            parts = zip(*items, strict=True)
            images, masks, known = (torch.stack(each).to(device) for each in parts)
            # What was added around an image is grey, the mean of all, and does not count.
            inputs = normalised(images, mean, std) * known[:, None]
            yield Batch(inputs, masks.long())

    def testing(self, chunks: Sequence[Tensor], device: torch.device) -> Iterator[Batch]:
        mean, std = self.facts.statistics(device)
        for items in _read(_Whole(self._test), chunks):
            images = [normalised(image.to(device), mean, std) for image, _ in items]
            masks = [mask.to(device).long() for _, mask in items]
            if len({mask.shape for mask in masks}) == 1:
                yield Batch(torch.stack(images), torch.stack(masks))
            else:
                yield Batch(images, masks)


def class_counts(mask: Tensor) -> Tensor:
    """How many pixels of bytes have each class; those that do not count are left out."""
    return torch.bincount(mask.flatten().long(), minlength=IGNORED + 1)[:IGNORED]


def blind_overlap(counts: Tensor) -> float:
    """The mean overlap of an answer that is the commonest class everywhere, of how many pixels have
    each class: that class has its share, and the others that are there have none."""
    return float(counts.max() / counts.sum() / (counts > 0).sum())


def crop(
    image: Tensor, mask: Tensor, side: tuple[int, int], padding: int, place: tuple[float, float]
) -> tuple[Tensor, Tensor, Tensor]:
    """A part of an image and of its mask.

    Args:
        image: bytes (3, H, W).
        mask: bytes (H, W).
        side: height and width of the part.
        padding: pixels added on each side first; more where the image is smaller than the part.
        place: where the part lies, from 0 (top, left) to below 1 (bottom, right).

    Returns:
        The part of the image, of the mask (added pixels are `IGNORED`), and which of its pixels the
        image has.
    """
    height, width = mask.shape
    rows, columns = (
        max(padding, -(-(wanted - there) // 2))
        for wanted, there in zip(side, (height, width), strict=True)
    )
    border = (columns, columns, rows, rows)
    known = F.pad(torch.ones(height, width), border)
    top, left = (
        int(share * (there + 2 * added - wanted + 1))
        for share, there, added, wanted in zip(
            place, (height, width), (rows, columns), side, strict=True
        )
    )
    part = (..., slice(top, top + side[0]), slice(left, left + side[1]))
    return F.pad(image, border)[part], F.pad(mask, border, value=IGNORED)[part], known[part]


def _read(items: _Crops | _Whole, chunks: Sequence[Tensor]) -> Iterator[list[tuple[Tensor, ...]]]:
    in_memory = all(isinstance(each.image, Tensor) for each in items.images)
    return read_batches(items, chunks, in_memory=in_memory)


class _Whole(Dataset[tuple[Tensor, ...]]):
    """The transform of images that stay as they are."""

    def __init__(self, images: Sequence[MaskImage]) -> None:
        self.images = images

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        item = self.images[index]
        return item.pixels(), item.classes()


class _Crops(Dataset[tuple[Tensor, ...]]):
    """A part of each image, at the places that were drawn for an epoch."""

    def __init__(
        self,
        images: Sequence[MaskImage],
        side: tuple[int, int],
        padding: int,
        places: Tensor,
        mirrored: Tensor,
    ) -> None:
        self.images = images
        self.side, self.padding, self.places, self.mirrored = side, padding, places, mirrored

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        item = self.images[index]
        top, left = (self.places[index] / (_PLACES + 1)).tolist()
        parts = crop(item.pixels(), item.classes(), self.side, self.padding, (top, left))
        return tuple(part.flip(-1) for part in parts) if self.mirrored[index] else parts
