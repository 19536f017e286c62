"""Test images as Ultralytics' validator sees them: resized, padded and put into batches by its own
data set, so that a measurement after training has the figures of the training's own validation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attnlab.bridges.yolo_study.folder import data_folder, refuse_missing
from attnlab.bridges.yolo_study.offline import offline
from attnlab.data import Batch, Data
from attnlab.data.batches import Chunk
from attnlab.data.boxes import BoxData

if TYPE_CHECKING:
    from ultralytics.data import YOLODataset

STRIDE = 32
"""Of the networks that are trained here: sides of images are multiples of it."""


class YoloData(Data):
    """A batch is images (N, 3, H, W), pixels 0 to 1, and what Ultralytics' validator takes.
    Training images are not augmented here: its trainer does that."""

    def __init__(self, boxes: BoxData, size: int) -> None:
        self._boxes, self.size = boxes, size
        self.facts = replace(
            boxes.facts, shape=(3, size, size), mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0)
        )

    @cached_property
    def folder(self) -> Path:
        """The images as files."""
        return data_folder(self._boxes)

    @property
    def file(self) -> Path:
        """The data set's YAML."""
        return self.folder / "data.yaml"

    def training(
        self, chunks: Sequence[Chunk], seed: int, epoch: int, device: torch.device
    ) -> Iterator[Batch]:
        del seed, epoch
        yield from self._read("train", [chunk.images for chunk in chunks], device)

    def testing(self, chunks: Sequence[Tensor], device: torch.device) -> Iterator[Batch]:
        yield from self._read("val", chunks, device)

    def _read(self, part: str, chunks: Sequence[Tensor], device: torch.device) -> Iterator[Batch]:
        if not len(chunks):
            return
        # Their batches hold images of like shape, so what an image is padded to depends on the
        # size of a batch.
        images = _opened(self, part, len(chunks[0]))
        for chunk in chunks:
            items = [images[number] for number in chunk.tolist()]
            for _, alike in groupby(items, key=lambda item: item["img"].shape):
                yield _batch(images.collate_fn(list(alike)), device)


@lru_cache(maxsize=4)
def _opened(data: YoloData, part: str, batch: int) -> YOLODataset:
    """A part of the data, padded as in a validation with batches of this size."""
    facts = data.facts
    with offline():
        from ultralytics.cfg import get_cfg
        from ultralytics.data import build_yolo_dataset
        from ultralytics.data.utils import check_det_dataset

        found = check_det_dataset(str(data.file))
        settings = get_cfg(overrides={"task": "detect", "imgsz": data.size})
        images: YOLODataset = build_yolo_dataset(
            settings, found[part], batch, found, mode="val", rect=True, stride=STRIDE
        )
    refuse_missing(len(images), facts.train if part == "train" else facts.test, part, data.folder)
    return images


def _batch(found: dict[str, Any], device: torch.device) -> Batch:
    targets = {
        name: value.to(device) if isinstance(value, Tensor) else value
        for name, value in found.items()
    }
    targets["img"] = targets["img"].float() / 255
    return Batch(targets["img"], targets)
