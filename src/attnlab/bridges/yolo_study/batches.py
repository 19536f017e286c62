"""Test images as Ultralytics' validators see them: resized, padded and put into batches by its own
data sets, so that a measurement after training has the figures of the training's own validation."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attnlab.bridges.yolo_study.folder import (
    class_folder,
    class_name,
    data_folder,
    refuse_missing,
)
from attnlab.bridges.yolo_study.kinds import STRIDE, Kind
from attnlab.bridges.yolo_study.offline import offline
from attnlab.data import Batch, Data, Facts, Value
from attnlab.data.batches import Chunk
from attnlab.data.boxes import BoxData

if TYPE_CHECKING:
    from ultralytics.data import ClassificationDataset, YOLODataset


class YoloData(Data):
    """Images as files, and Ultralytics' own reading of them. Training images are not augmented
    here: its trainer does that."""

    def __init__(self, facts: Facts, kind: Kind, size: int, settings: Mapping[str, Value]) -> None:
        """`facts` of the images; `settings` of Ultralytics that decide what is in a batch."""
        self.kind, self.size, self.settings = kind, size, settings
        mean, std = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
        self.facts = replace(facts, shape=(3, size, size), mean=mean, std=std)

    @property
    @abstractmethod
    def folder(self) -> Path:
        """The images as files."""

    @property
    @abstractmethod
    def source(self) -> Path:
        """What Ultralytics' setting `data` names."""

    @abstractmethod
    def _read(self, part: str, chunks: Sequence[Tensor], device: torch.device) -> Iterator[Batch]:
        """Yield one batch per chunk of images, or more if their shapes differ."""

    def training(
        self, chunks: Sequence[Chunk], seed: int, epoch: int, device: torch.device
    ) -> Iterator[Batch]:
        del seed, epoch
        yield from self._read("train", [chunk.images for chunk in chunks], device)

    def testing(self, chunks: Sequence[Tensor], device: torch.device) -> Iterator[Batch]:
        yield from self._read("val", chunks, device)

    def check(self, train: int, test: int) -> None:
        """Refuse to go on if Ultralytics reads fewer images than there are."""
        refuse_missing(train, self.facts.train, "train", self.folder)
        refuse_missing(test, self.facts.test, "val", self.folder)

    def _arguments(self) -> object:
        from ultralytics.cfg import get_cfg

        return get_cfg(overrides={"task": self.kind.name, "imgsz": self.size, **self.settings})


class YoloObjects(YoloData):
    """A batch is images (N, 3, H, W), pixels 0 to 1, and what Ultralytics' validator takes."""

    def __init__(
        self, boxes: BoxData, kind: Kind, size: int, settings: Mapping[str, Value]
    ) -> None:
        super().__init__(boxes.facts, kind, size, settings)
        self._boxes = boxes

    @cached_property
    def folder(self) -> Path:
        return data_folder(self._boxes, self.kind)

    @property
    def source(self) -> Path:
        return self.folder / "data.yaml"

    def _read(self, part: str, chunks: Sequence[Tensor], device: torch.device) -> Iterator[Batch]:
        if not len(chunks):
            return
        # Their batches hold images of like shape, so what an image is padded to depends on the
        # size of a batch.
        images = self._opened(part, len(chunks[0]))
        for chunk in chunks:
            items = [images[number] for number in chunk.tolist()]
            for _, alike in groupby(items, key=lambda item: item["img"].shape):
                yield _batch(images.collate_fn(list(alike)), device)

    @lru_cache(maxsize=4)  # noqa: B019 (data live as long as their process)
    def _opened(self, part: str, batch: int) -> YOLODataset:
        """A part of the data, padded as in a validation with batches of this size."""
        with offline():
            from ultralytics.data import build_yolo_dataset
            from ultralytics.data.utils import check_det_dataset

            found = check_det_dataset(str(self.source))
            images: YOLODataset = build_yolo_dataset(
                self._arguments(), found[part], batch, found, mode="val", rect=True, stride=STRIDE
            )
        expected = self.facts.train if part == "train" else self.facts.test
        refuse_missing(len(images), expected, part, self.folder)
        return images


def _batch(found: dict[str, Any], device: torch.device) -> Batch:
    targets = {
        name: value.to(device) if isinstance(value, Tensor) else value
        for name, value in found.items()
    }
    targets["img"] = targets["img"].float() / 255
    if "masks" in targets:
        targets["masks"] = targets["masks"].float()
    return Batch(targets["img"], targets)


class YoloClasses(YoloData):
    """A batch is images (N, 3, H, W), pixels 0 to 1, and their classes."""

    def __init__(self, images: Data, kind: Kind, size: int, settings: Mapping[str, Value]) -> None:
        super().__init__(images.facts, kind, size, settings)
        self._images = images

    @cached_property
    def folder(self) -> Path:
        return class_folder(self._images)

    @property
    def source(self) -> Path:
        return self.folder

    def _read(self, part: str, chunks: Sequence[Tensor], device: torch.device) -> Iterator[Batch]:
        images, order = self._opened(part)
        for chunk in chunks:
            items = [images[order[number]] for number in chunk.tolist()]
            pixels = torch.stack([item["img"] for item in items])
            yield Batch(pixels.to(device), torch.tensor([item["cls"] for item in items]).to(device))

    @lru_cache(maxsize=2)  # noqa: B019 (data live as long as their process)
    def _opened(self, part: str) -> tuple[ClassificationDataset, list[int]]:
        """A part of the data, and where in it our images are: theirs are sorted by class."""
        with offline():
            from ultralytics.data import ClassificationDataset

            names = {n: class_name(n, self.facts.outputs) for n in range(self.facts.outputs)}
            images = ClassificationDataset(
                str(self.folder / part), self._arguments(), prefix=part, names=names
            )
        expected = self.facts.train if part == "train" else self.facts.test
        refuse_missing(len(images), expected, part, self.folder)
        numbers = torch.tensor([int(Path(sample[0]).stem) for sample in images.samples])
        return images, numbers.argsort().tolist()
