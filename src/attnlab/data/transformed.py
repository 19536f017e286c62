"""Training batches through a transform of the user's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from attnlab._errors import InputError, check_options
from attnlab._imported import imported
from attnlab._seeds import derive
from attnlab.data.batches import Chunk
from attnlab.data.config import Augmentation
from attnlab.data.data import Batch, Data


def with_transform(data: Data, augmentation: Augmentation) -> Data:
    """`data`, its training batches through the transform that `augmentation` names, if any."""
    if augmentation.transform is None:
        return data
    found = imported("transform", augmentation.transform)
    options = augmentation.transform_options
    check_options(f"Transform {augmentation.transform!r}", found.__init__, options)
    return TransformedData(data, found(**options))


class TransformedData(Data):
    """Each batch draws from a stream of its own, so that a run resumes to the bit, and runs of one
    seed see the same images whatever the gate."""

    def __init__(self, data: Data, transform: nn.Module) -> None:
        self.facts = data.facts
        self._data, self._transform = data, transform

    def training(
        self, chunks: Sequence[Chunk], seed: int, epoch: int, device: torch.device
    ) -> Iterator[Batch]:
        batches = self._data.training(chunks, seed, epoch, device)
        for chunk, batch in zip(chunks, batches, strict=True):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(derive(seed, "transform", epoch, *chunk.images[:1].tolist()))
                images = self._transform(batch.inputs)
            if not isinstance(images, Tensor) or images.shape[0] != batch.inputs.shape[0]:
                got = tuple(images.shape) if isinstance(images, Tensor) else type(images).__name__
                raise InputError(
                    f"Transform {type(self._transform).__name__}: expected a tensor with the "
                    f"{batch.inputs.shape[0]} images of the batch but got {got}."
                )
            yield Batch(images, batch.targets)

    def testing(self, chunks: Sequence[Tensor], device: torch.device) -> Iterator[Batch]:
        return self._data.testing(chunks, device)
