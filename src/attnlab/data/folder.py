"""Folders of photographs, one per class, on disk or at an address of fsspec: read into memory where
they fit, else as they are used."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from PIL import Image
from torch import Tensor

from attnlab._checksums import composed, files_checksum, names_checksum
from attnlab._errors import InputError, OptionError
from attnlab._spread import evenly_spread
from attnlab._words import listed
from attnlab.data.batches import Data, Facts
from attnlab.data.config import DataConfig
from attnlab.data.decoding import whole_picture
from attnlab.data.memory import MemoryData, Pixels, commonest_share, lacking_classes
from attnlab.data.pictures import (
    SUFFIXES,
    FoundImages,
    decoded,
    images_among,
    left_out,
    opened,
    verify,
)
from attnlab.data.samples import FileSamples, read_files, read_first, sampled_note
from attnlab.data.stream import StreamData, fitted, test_fit
from attnlab.data.trees import Tree, tree_at
from attnlab.networks.preprocessing import IMAGENET, Preprocessing

MEMORY_LIMIT = 4 * 2**30
"""Bytes of pixels up to which a folder is read into memory."""

_AT_A_TIME = 64
"""Files that are asked for together at an address."""
_File = tuple[Path, int]


class FolderFiles(NamedTuple):
    """The files that `config` chooses, and the names of the classes."""

    tree: Tree
    train: list[_File]
    test: list[_File]
    classes: list[str]
    notes: tuple[str, ...]
    """What was left out, and which classes a part lacks."""

    def checksum(self, every: bool) -> str:
        """Return a checksum of the names below the folder, which tell the class, and of all
        content; of many images, of all names and sizes and of some content."""
        read = [path for path, _ in read_first(self.all, every)]
        if self.tree.on_disk:
            found = files_checksum(self.tree.root, read)  # which remembers what it has read
        else:
            hashes = (hashlib.sha256(content).hexdigest() for _, content in self._contents(read))
            found = names_checksum(zip(map(self._name, read), hashes, strict=True))
        if len(read) == len(self.all):
            return found
        whole = hashlib.sha256(found.encode())
        for path, _ in sorted(self.all):
            whole.update(self._name(path) + f"\t{self.tree.size(path)}\n".encode())
        return whole.hexdigest()

    def _name(self, path: Path) -> bytes:
        return composed(path.relative_to(self.tree.root).as_posix())

    def _contents(self, paths: Sequence[Path]) -> Iterator[tuple[str, bytes]]:
        """Of each file where it is and what is in it; an address is asked for some at a time."""
        places = [self.tree.place(path) for path in paths]
        for start in range(0, len(places), _AT_A_TIME):
            some = places[start : start + _AT_A_TIME]
            yield from zip(some, read_files(some), strict=True)

    def look_into(self, paths: Sequence[Path]) -> None:
        """Open each file; the first that is not an image is an error."""
        if self.tree.on_disk:
            verify(paths)  # which reads no more than it needs
            return
        for place, content in self._contents(paths):
            opened(content, lambda image: image.verify(), place)

    def pictures(self, part: Sequence[_File]) -> Iterator[Image.Image]:
        """The decoded images of a part, in order."""
        paths = [path for path, _ in part]
        if self.tree.on_disk:
            yield from map(decoded, paths)
            return
        for place, content in self._contents(paths):
            yield whole_picture(content, place)

    def samples(self, part: Sequence[_File]) -> FileSamples:
        """The images of a part, to be read while they are used."""
        return FileSamples([(self.tree.place(path), label) for path, label in part])

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
        parts = [_read(files, part, known) for part in (files.train, files.test)]
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
    files.look_into([path for path, _ in looked])
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
    train, test = (files.samples(part) for part in (files.train, files.test))
    return StreamData(facts, train, test, config.augmentation, test_fit(known, config.augmentation))


def find_files(config: DataConfig) -> FolderFiles:
    """The files of the folder, none of them opened."""
    tree = tree_at(config.root)
    _size(config)
    _, folders, _ = next(tree.walk(tree.root))
    testing = next((name for name in ("test", "val") if name in folders), None)
    if "train" not in folders or testing is None:
        found = ", ".join(sorted(folders)) or "no folder"
        raise InputError(
            f"Expected folders train and test (or val) in {tree.shown!r}, each with one folder per "
            f"class, but found {found}."
        )
    training, tested = _look_through(tree, "train"), _look_through(tree, testing)
    classes = sorted(training.images)
    # A folder that is empty in both parts is not a class; one that only testing has is a mistake.
    both_empty = {*training.empty} & {*tested.empty}
    unknown = sorted({*tested.images, *tested.empty} - {*classes} - both_empty)
    if unknown:
        raise InputError(
            f"{tree.place(tree.root / testing)!r} has classes that the training images do not "
            f"have: {', '.join(unknown[:5])}. Expected the folders {', '.join(classes[:5])}, …"
        )
    train = _files(tree, "train", training, classes, config.train_subset)
    test = _files(tree, testing, tested, classes, config.test_subset)
    subsets = config.train_subset, config.test_subset
    lacking = lacking_classes(_labels(train), _labels(test), classes, subsets)
    unused = testing != "val" and "val" in folders
    notes = (*_notes(unused, training, tested), *lacking)
    return FolderFiles(tree, train, test, classes, notes)


def class_names(config: DataConfig, number: int) -> tuple[str, ...]:
    """Return what the `number` classes are called: the names of the folders, else their numbers."""
    if config.name == "folder":
        return tuple(find_files(config).classes)
    return tuple(str(each) for each in range(number))


def _notes(unused: bool, training: _Classes, tested: _Classes) -> list[str]:
    """What is in the folder and is not used."""
    notes = [*training.notes, *tested.notes]
    if training.empty:
        empty = listed([f"train/{name}" for name in training.empty])
        notes.append(f"Without a file, so not a class: {empty}.")
    if unused:
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


def _look_through(tree: Tree, part: str) -> _Classes:
    folder = tree.root / part
    _, folders, files = next(tree.walk(folder))
    names = sorted(name for name in folders if not name.startswith("."))
    found = {name: images_among(tree.walk(folder / name)) for name in names}
    for name, each in found.items():
        if each.unread and not each.images:
            raise InputError(
                f"{tree.place(folder / name)!r} has no image that is read: its files are "
                f"{listed(sorted(each.unread))}. Expected files that end in {', '.join(SUFFIXES)}: "
                f"convert them, or take the folder out."
            )
    empty = [name for name, each in found.items() if not each.images]
    hidden = [folder / name for name in folders if name.startswith(".")]
    loose = [name for name in sorted(files) if Path(name).suffix.lower() in SUFFIXES]
    notes = left_out(tree.root, part, [FoundImages([], Counter(), hidden), *found.values()])
    if loose:
        notes.append(f"In {part} but in no class, so left out: {listed(loose)}.")
    images = {name: each.images for name, each in found.items() if each.images}
    return _Classes(images, empty, notes)


def _files(
    tree: Tree, name: str, part: _Classes, classes: Sequence[str], limit: int | None
) -> list[_File]:
    found = [
        (path, number) for number, each in enumerate(classes) for path in part.images.get(each, ())
    ]
    if not found:
        raise InputError(
            f"There is no image in {tree.place(tree.root / name)!r}. Expected one folder per class "
            f"with files that end in {', '.join(SUFFIXES)}."
        )
    # Evenly spread, which is the same share of every class: they are sorted by class.
    return [found[i] for i in evenly_spread(len(found), limit)]


def _read(files: FolderFiles, part: Sequence[_File], preprocessing: Preprocessing) -> Pixels:
    _, height, width = preprocessing.size
    fit = fitted((height, width), preprocessing.short_side, preprocessing.interpolation)
    images = torch.stack([fit(picture) for picture in files.pictures(part)])
    return Pixels(images, _labels(part))


def _labels(files: Sequence[_File]) -> Tensor:
    return torch.tensor([label for _, label in files])
