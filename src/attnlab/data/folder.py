"""Folders of photographs, one per class: read into memory where they fit, else as they are used."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from PIL import Image
from torch.utils.data import Dataset

from attnlab._checksums import files_checksum
from attnlab._errors import InputError, OptionError
from attnlab._spread import evenly_spread
from attnlab.data.batches import Data, Facts
from attnlab.data.config import DataConfig
from attnlab.data.memory import MemoryData, Pixels
from attnlab.data.pictures import SUFFIXES, decoded, verify
from attnlab.data.stream import StreamData, fitted
from attnlab.networks.preprocessing import IMAGENET, Preprocessing

MEMORY_LIMIT = 4 * 2**30
"""Bytes of pixels up to which a folder is read into memory."""
_OPENED_FIRST = 20_000
"""Images up to which every file is opened before training; of more, about this many."""

_File = tuple[Path, int]


class FolderFiles(NamedTuple):
    """The files that `config` chooses, and the names of the classes."""

    root: Path
    train: list[_File]
    test: list[_File]
    classes: list[str]

    def checksum(self) -> str:
        """Return a checksum of the names below the folder, which tell the class, and of all
        content."""
        return files_checksum(self.root, [path for path, _ in self.all])

    @property
    def all(self) -> list[_File]:
        return self.train + self.test


def load_folder(
    config: DataConfig, checksum: str, preprocessing: Preprocessing | None = None
) -> Data:
    """`root`/train/CLASS/… and `root`/test/CLASS/… (or val); photographs are prepared as ImageNet's
    are unless a network says otherwise."""
    files, size = find_files(config), _size(config)
    known = preprocessing or Preprocessing((3, size, size), *IMAGENET)
    needed = 3 * size**2 * len(files.all)
    if config.augmentation.crop != "resized" and needed <= MEMORY_LIMIT:
        parts = [_read(part, known) for part in (files.train, files.test)]
        outputs, statistics = len(files.classes), (known.mean, known.std)
        return MemoryData(
            "folder", parts[0], parts[1], outputs, checksum, config.augmentation, statistics
        )
    # All of them up to a number, then evenly spread.
    step = max(1, len(files.all) // _OPENED_FIRST)
    verify([path for path, _ in files.all[::step]])
    counts = len(files.train), len(files.test)
    facts = Facts(
        "folder", "class", len(files.classes), known.size, *counts, known.mean, known.std, checksum
    )
    return StreamData(facts, _Images(files.train), _Images(files.test), config.augmentation)


def find_files(config: DataConfig) -> FolderFiles:
    """The files of the folder, none of them opened."""
    if config.root is None:
        raise OptionError("Data 'folder' needs its folder, root = 'path/of/images'.")
    _size(config)
    root = Path(config.root)
    if not root.is_dir():
        raise InputError(f"There is no folder {str(root)!r}.")
    testing = next((root / name for name in ("test", "val") if (root / name).is_dir()), None)
    if not (root / "train").is_dir() or testing is None:
        found = ", ".join(sorted(p.name for p in root.iterdir() if p.is_dir())) or "no folder"
        raise InputError(
            f"Expected folders train and test (or val) in {str(root)!r}, each with one folder per "
            f"class, but found {found}."
        )
    classes = sorted(p.name for p in (root / "train").iterdir() if p.is_dir())
    train = _files(root / "train", classes, config.train_subset)
    return FolderFiles(root, train, _files(testing, classes, config.test_subset), classes)


def _size(config: DataConfig) -> int:
    if config.size is None:
        raise OptionError("Data 'folder' needs the side of the images, size = 224 for example.")
    return config.size


def _files(folder: Path, classes: Sequence[str], limit: int | None) -> list[_File]:
    unknown = sorted(p.name for p in folder.iterdir() if p.is_dir() and p.name not in classes)
    if unknown:
        raise InputError(
            f"{str(folder)!r} has classes that the training images do not have: "
            f"{', '.join(unknown[:5])}. Expected the folders {', '.join(classes[:5])}, …"
        )
    found = [
        (path, number)
        for number, name in enumerate(classes)
        for path in sorted((folder / name).rglob("*"))
        if path.suffix.lower() in SUFFIXES
    ]
    if not found:
        raise InputError(
            f"There is no image in {str(folder)!r}. Expected one folder per class with files that "
            f"end in {', '.join(SUFFIXES)}."
        )
    # Evenly spread, which is the same share of every class: they are sorted by class.
    return [found[i] for i in evenly_spread(len(found), limit).tolist()]


def _read(files: Sequence[_File], preprocessing: Preprocessing) -> Pixels:
    _, height, width = preprocessing.size
    fit = fitted((height, width), preprocessing.short_side, preprocessing.interpolation)
    images = torch.stack([fit(decoded(path)) for path, _ in files])
    return Pixels(images, torch.tensor([label for _, label in files]))


class _Images(Dataset[tuple[Image.Image, int]]):
    """Image files that are opened when they are asked for."""

    def __init__(self, files: list[_File]) -> None:
        self.files = files

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        path, label = self.files[index]
        return decoded(path), label
