"""Augmentation of whole batches: crop, mirror and normalise without a loop over images, then a
transform of the user's own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab._errors import InputError, OptionError, check_options
from attnlab._imported import imported
from attnlab._seeds import derive, stream
from attnlab.data.batches import Batch, Chunk, Data
from attnlab.data.config import Augmentation
from attnlab.data.decoding import drawing_all


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


def augmented(data: Data, augmentation: Augmentation) -> Data:
    """`data`, with what `augmentation` says of whole training batches: erasing, mixing, and a
    transform of the user's own, in this order."""
    data = checked(data, augmentation)
    if augmentation.erase or augmentation.mixup or augmentation.cutmix:
        data = MixedData(data, augmentation)
    return with_transform(data, augmentation)


def checked(data: Data, augmentation: Augmentation) -> Data:
    """Return `data` itself; refuse an augmentation that does not go with it."""
    name = data.facts.name
    if augmentation.policy is not None and not data.streams:
        raise OptionError(
            f"policy = {augmentation.policy!r} acts on single images that are read while they are "
            f"used, and {name!r} is not read so. It is for data 'folder' and 'shards'."
        )
    mixes = augmentation.erase or augmentation.mixup or augmentation.cutmix
    if mixes and data.facts.targets != "class":
        raise OptionError(
            f"erase, mixup and cutmix are for images with one class, which {name!r} has not. Leave "
            f"them out."
        )
    return data


def with_transform(data: Data, augmentation: Augmentation) -> Data:
    """`data`, its training batches through the transform that `augmentation` names, if any."""
    if augmentation.transform is None:
        return data
    found = imported("transform", augmentation.transform)
    options = augmentation.transform_options
    check_options(f"Transform {augmentation.transform!r}", found.__init__, options)
    return TransformedData(data, found(**options))


class _ChangedBatches(Data):
    """Data whose training batches are changed, one by one.

    Each batch draws from its own stream, so that a run resumes to the bit, and runs of one seed see
    the same images whatever the gate. With several processes each changes its part of a batch.
    """

    draws: ClassVar[str]
    """The name of that stream."""

    def __init__(self, data: Data) -> None:
        self.facts, self.streams, self._data = data.facts, data.streams, data

    def order(self, seed: int, epoch: int) -> Tensor:
        return self._data.order(seed, epoch)

    def training(
        self, chunks: Sequence[Chunk], seed: int, epoch: int, device: torch.device
    ) -> Iterator[Batch]:
        batches = self._data.training(chunks, seed, epoch, device)
        for chunk, batch in zip(chunks, batches, strict=True):
            own_seed = derive(seed, self.draws, epoch, *chunk.images[:1].tolist())
            yield self.changed(batch, own_seed, device)

    def testing(self, chunks: Sequence[Tensor], device: torch.device) -> Iterator[Batch]:
        return self._data.testing(chunks, device)

    @abstractmethod
    def changed(self, batch: Batch, seed: int, device: torch.device) -> Batch:
        """The batch as it is trained on, all random numbers drawn from `seed`."""


class MixedData(_ChangedBatches):
    """Random erasing of timm, then MixUp or CutMix of torchvision, on normalised batches."""

    draws = "mix"

    def __init__(self, data: Data, augmentation: Augmentation) -> None:
        super().__init__(data)
        self._augmentation = augmentation

    def changed(self, batch: Batch, seed: int, device: torch.device) -> Batch:
        with drawing_all(seed, device):
            return self._mixed(batch, device)

    def _mixed(self, batch: Batch, device: torch.device) -> Batch:
        from timm.data.random_erasing import RandomErasing
        from torchvision.transforms import v2

        chosen, images, targets = self._augmentation, batch.inputs, batch.targets
        if chosen.erase:
            images = RandomErasing(chosen.erase, mode="pixel", device=device)(images)
        classes = self.facts.outputs
        mixes = [
            kind(alpha=alpha, num_classes=classes)
            for kind, alpha in ((v2.MixUp, chosen.mixup), (v2.CutMix, chosen.cutmix))
            if alpha
        ]
        if mixes:
            images, targets = v2.RandomChoice(mixes)(images, targets)
        return Batch(images, targets)


class TransformedData(_ChangedBatches):
    """Training batches through a transform of the user's own."""

    draws = "transform"

    def __init__(self, data: Data, transform: nn.Module) -> None:
        super().__init__(data)
        self._transform = transform

    def changed(self, batch: Batch, seed: int, device: torch.device) -> Batch:
        del device
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            images = self._transform(batch.inputs)
        if not isinstance(images, Tensor) or images.shape[0] != batch.inputs.shape[0]:
            got = tuple(images.shape) if isinstance(images, Tensor) else type(images).__name__
            raise InputError(
                f"Transform {type(self._transform).__name__}: expected a tensor with the "
                f"{batch.inputs.shape[0]} images of the batch but got {got}."
            )
        return Batch(images, batch.targets)
