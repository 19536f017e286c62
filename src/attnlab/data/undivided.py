"""A folder of photographs that is not divided into training and test images: to measure a network
on, not to train it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from attnlab._checksums import files_checksum
from attnlab._errors import InputError
from attnlab.data.augment import normalised
from attnlab.data.batches import Chunk
from attnlab.data.data import Batch, Data, Facts
from attnlab.data.decode import SUFFIXES, decoded
from attnlab.data.stream import fitted
from attnlab.networks.preprocessing import Preprocessing


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
        paths = image_files(folder)
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
        )

    def training(
        self, chunks: Sequence[Chunk], seed: int, epoch: int, device: torch.device
    ) -> Iterator[Batch]:
        del seed, epoch  # nothing is trained on them, so nothing is augmented
        return self.testing([chunk.images for chunk in chunks], device)

    def testing(self, chunks: Sequence[Tensor], device: torch.device) -> Iterator[Batch]:
        mean, std = (torch.tensor(v, device=device) for v in (self.facts.mean, self.facts.std))
        for chosen in chunks:
            files = [self._files[place] for place in chosen.tolist()]
            images = torch.stack([self._fit(decoded(path, self._mode)) for path, _ in files])
            labels = torch.tensor([label for _, label in files], device=device)
            yield Batch(normalised(images.to(device), mean, std), labels)


def image_files(folder: Path) -> list[Path]:
    """Every image below a folder; an error if there is none."""
    paths = sorted(p for p in folder.rglob("*") if p.suffix.lower() in SUFFIXES)
    if not paths:
        raise InputError(
            f"There is no image in {str(folder)!r}. Expected files that end in "
            f"{', '.join(SUFFIXES)}, in the folder or in one folder per class."
        )
    return paths
