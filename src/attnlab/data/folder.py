"""Folders of photographs, one per class: read into memory where they fit, else as they are used."""

from __future__ import annotations

import hashlib
import unicodedata
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from attnlab._checksums import files_checksum
from attnlab._errors import InputError, OptionError
from attnlab._spread import evenly_spread
from attnlab._words import listed
from attnlab.data.batches import Data, Facts
from attnlab.data.config import DataConfig
from attnlab.data.memory import MemoryData, Pixels, commonest_share, lacking_classes
from attnlab.data.pictures import (
    SUFFIXES,
    FoundImages,
    decoded,
    find_images,
    left_out,
    verify,
)
from attnlab.data.samples import FileSamples, read_first, sampled_note
from attnlab.data.stream import StreamData, fitted, test_fit
from attnlab.networks.preprocessing import IMAGENET, Preprocessing

MEMORY_LIMIT = 4 * 2**30
"""Bytes of pixels up to which a folder is read into memory."""

_File = tuple[Path, int]


class FolderFiles(NamedTuple):
    """The files that `config` chooses, and the names of the classes."""

    root: Path
    train: list[_File]
    test: list[_File]
    classes: list[str]
    notes: tuple[str, ...]
    """What was left out, and which classes a part lacks."""

    def checksum(self, every: bool) -> str:
        """Return a checksum of the names below the folder, which tell the class, and of all
        content; of many images, of all names and sizes and of some content."""
        read = [path for path, _ in read_first(self.all, every)]
        found = files_checksum(self.root, read)
        if len(read) == len(self.all):
            return found
        whole = hashlib.sha256(found.encode())
        for path, _ in sorted(self.all):
            name = unicodedata.normalize("NFC", path.relative_to(self.root).as_posix())
            line = f"{name}\t{path.stat().st_size}\n"
            whole.update(line.encode("utf-8", "surrogateescape"))
        return whole.hexdigest()

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
    augmentation = config.augmentation
    single = augmentation.crop == "resized" or augmentation.policy is not None
    if not single and needed <= MEMORY_LIMIT:
        parts = [_read(part, known) for part in (files.train, files.test)]
        outputs, statistics = len(files.classes), (known.mean, known.std)
        return MemoryData(
            config.title,
            parts[0],
            parts[1],
            outputs,
            checksum,
            config.augmentation,
            statistics,
            notes=files.notes,
        )
    looked = read_first(files.all, config.hash_all)
    verify([path for path, _ in looked])
    counts = len(files.train), len(files.test)
    facts = Facts(
        config.title,
        "class",
        len(files.classes),
        known.size,
        *counts,
        known.mean,
        known.std,
        checksum,
        notes=(*files.notes, *sampled_note(len(files.all), len(looked))),
        chance=commonest_share(_labels(files.test)),
    )
    train, test = (FileSamples(part) for part in (files.train, files.test))
    return StreamData(facts, train, test, config.augmentation, test_fit(known, config.augmentation))


def find_files(config: DataConfig) -> FolderFiles:
    """The files of the folder, none of them opened."""
    root = config.folder()
    _size(config)
    testing = next((root / name for name in ("test", "val") if (root / name).is_dir()), None)
    if not (root / "train").is_dir() or testing is None:
        found = ", ".join(sorted(p.name for p in root.iterdir() if p.is_dir())) or "no folder"
        raise InputError(
            f"Expected folders train and test (or val) in {str(root)!r}, each with one folder per "
            f"class, but found {found}."
        )
    training, tested = _look_through(root, "train"), _look_through(root, testing.name)
    classes = sorted(training.images)
    # A folder that is empty in both parts is not a class; one that only testing has is a mistake.
    both_empty = {*training.empty} & {*tested.empty}
    unknown = sorted({*tested.images, *tested.empty} - {*classes} - both_empty)
    if unknown:
        raise InputError(
            f"{str(testing)!r} has classes that the training images do not have: "
            f"{', '.join(unknown[:5])}. Expected the folders {', '.join(classes[:5])}, …"
        )
    train = _files(root / "train", training, classes, config.train_subset)
    test = _files(testing, tested, classes, config.test_subset)
    subsets = config.train_subset, config.test_subset
    lacking = lacking_classes(_labels(train), _labels(test), classes, subsets)
    notes = (*_notes(root, testing, training, tested), *lacking)
    return FolderFiles(root, train, test, classes, notes)


def class_names(config: DataConfig, number: int) -> tuple[str, ...]:
    """Return what the `number` classes are called: the names of the folders, else their numbers."""
    if config.name == "folder":
        return tuple(find_files(config).classes)
    return tuple(str(each) for each in range(number))


def _notes(root: Path, testing: Path, training: _Classes, tested: _Classes) -> list[str]:
    """What is in the folder and is not used."""
    notes = [*training.notes, *tested.notes]
    if training.empty:
        empty = listed([f"train/{name}" for name in training.empty])
        notes.append(f"Without a file, so not a class: {empty}.")
    if testing.name != "val" and (root / "val").is_dir():
        notes.append("The folder val is not used: testing is on the folder test.")
    return notes


def _size(config: DataConfig) -> int:
    if config.size is None:
        raise OptionError("Data 'folder' needs the side of the images, size = 224 for example.")
    return config.size


class _Classes(NamedTuple):
    """What one part of a folder holds."""

    images: dict[str, list[Path]]
    """By the name of the class."""
    empty: list[str]
    """Folders without any file."""
    notes: list[str]


def _look_through(root: Path, part: str) -> _Classes:
    folder = root / part
    names = sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    found = {name: find_images(folder / name) for name in names}
    for name, each in found.items():
        if each.unread and not each.images:
            raise InputError(
                f"{str(folder / name)!r} has no image that is read: its files are "
                f"{listed(sorted(each.unread))}. Expected files that end in {', '.join(SUFFIXES)}: "
                f"convert them, or take the folder out."
            )
    empty = [name for name, each in found.items() if not each.images]
    hidden = [p for p in folder.iterdir() if p.is_dir() and p.name.startswith(".")]
    loose = [p.name for p in sorted(folder.iterdir()) if p.suffix.lower() in SUFFIXES]
    notes = left_out(root, part, [FoundImages([], Counter(), hidden), *found.values()])
    if loose:
        notes.append(f"In {part} but in no class, so left out: {listed(loose)}.")
    images = {name: each.images for name, each in found.items() if each.images}
    return _Classes(images, empty, notes)


def _files(folder: Path, part: _Classes, classes: Sequence[str], limit: int | None) -> list[_File]:
    found = [
        (path, number) for number, name in enumerate(classes) for path in part.images.get(name, ())
    ]
    if not found:
        raise InputError(
            f"There is no image in {str(folder)!r}. Expected one folder per class with files that "
            f"end in {', '.join(SUFFIXES)}."
        )
    # Evenly spread, which is the same share of every class: they are sorted by class.
    return [found[i] for i in evenly_spread(len(found), limit)]


def _read(files: Sequence[_File], preprocessing: Preprocessing) -> Pixels:
    _, height, width = preprocessing.size
    fit = fitted((height, width), preprocessing.short_side, preprocessing.interpolation)
    images = torch.stack([fit(decoded(path)) for path, _ in files])
    return Pixels(images, _labels(files))


def _labels(files: Sequence[_File]) -> Tensor:
    return torch.tensor([label for _, label in files])
