"""Encoded images with their class, read by number while they are used: as files, or as parts of
larger files, on this machine or at an address of fsspec (`s3://bucket/folder`)."""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from attnlab._address import FileSystem
from attnlab._errors import InputError
from attnlab._spread import evenly_spread

Item = TypeVar("Item")
ALL_READ = 20_000
"""Up to this number of images all content is hashed, and every image is opened, before training:
seconds."""
SOME_READ = 2_000
"""How many are if there are more, evenly spread: ImageNet's 150 GB would take half an hour."""


def read_first(items: Sequence[Item], every: bool = False) -> Sequence[Item]:
    """The images that are hashed and opened before training: all up to `ALL_READ`, or if `every`;
    of more, `SOME_READ`."""
    if every or len(items) <= ALL_READ:
        return items
    return [items[number] for number in evenly_spread(len(items), SOME_READ)]


def sampled_note(
    images: int, read: int, told_by: str = "the name, size and class of every image"
) -> list[str]:
    """Return what a reader of the results should know of how the data were told from others if not
    all images were `read` first."""
    if read == images:
        return []
    return [
        f"Told from other data by {told_by} and the content of {read:,} of {images:,}; "
        f"data.hash_all = true takes the content of all."
    ]


class Packed:
    """Many names in one piece of memory. A list of a million strings is copied bit by bit into
    every worker process, because to look at an object of Python's changes it."""

    def __init__(self, names: Sequence[str]) -> None:
        encoded = [name.encode("utf-8", "surrogateescape") for name in names]
        self._ends = np.fromiter(accumulate(map(len, encoded)), np.int64, len(encoded))
        self._text = np.frombuffer(b"".join(encoded), np.uint8)

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, number: int) -> str:
        start = int(self._ends[number - 1]) if number else 0
        return (
            self._text[start : int(self._ends[number])].tobytes().decode("utf-8", "surrogateescape")
        )


class Samples(ABC):
    """Encoded images with their class. What lies in memory does not grow while they are read."""

    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    @abstractmethod
    def name(self, number: int) -> str:
        """Return what errors call an image."""

    @abstractmethod
    def read(self, numbers: Sequence[int]) -> list[bytes]:
        """The content of some images, as it is stored."""

    def groups(self) -> Tensor | None:
        """In which file each image lies, if many share one."""
        return None


class FileSamples(Samples):
    """One file for each image, by path or address."""

    def __init__(self, files: Sequence[tuple[str, int]]) -> None:
        self.labels = torch.tensor([label for _, label in files])
        self._paths = Packed([path for path, _ in files])

    def name(self, number: int) -> str:
        return self._paths[number]

    def read(self, numbers: Sequence[int]) -> list[bytes]:
        return read_files([self._paths[number] for number in numbers])


def read_files(paths: Sequence[str]) -> list[bytes]:
    """The content of whole files, asked for at the same time if they are at an address."""
    if not paths or "://" not in paths[0]:
        return [_content(path) for path in paths]
    import fsspec

    # Made anew in each process: connections do not survive a fork. fsspec remembers it.
    system, _ = fsspec.core.url_to_fs(paths[0])
    inside = [system._strip_protocol(path) for path in paths]
    found = system.cat(inside, on_error="return")
    contents = [found.get(path, FileNotFoundError("it is not there")) for path in inside]
    for path, content in zip(paths, contents, strict=True):
        if isinstance(content, BaseException):
            raise InputError(
                f"{path!r} cannot be read ({content}), and was there when the training began. The "
                f"run can be taken up when it can be."
            ) from content
    return [bytes(content) for content in contents]


def _content(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InputError(
            f"{path!r} cannot be read ({error.strerror}), and was there when the training began."
        ) from error


class Stamp(NamedTuple):
    """What is another if a file of this machine is written anew."""

    size: int
    modified: int

    @classmethod
    def of(cls, file: str | int) -> Stamp | None:
        """What the system says of a file, or of one that is open; None if it is at an address."""
        if isinstance(file, str) and "://" in file:
            return None
        status = os.stat(file)
        return cls(status.st_size, status.st_mtime_ns)


def check_unchanged(file: str, before: Stamp | None, now: Stamp | None) -> None:
    """Refuse a file that was written anew: other images may lie in the same places, of the same
    sizes, which no reader would notice."""
    if now != before:
        raise InputError(
            f"{file!r} is not the file that it was when the training began: it was written anew. "
            f"Do not change data while they are used; start again, which looks through them."
        )


class Extent(NamedTuple):
    """Where the content of an image lies."""

    file: str
    start: int
    size: int
    stamp: Stamp | None
    """Of the file, when it was found; None if it is at an address."""


class ShardSamples(Samples):
    """Images many of which share a file."""

    in_groups = False
    """Whether one can be read only with others around it."""
    told_by = "the name, size and class of every image"
    """What tells these images from others beside the content that is read first."""

    @abstractmethod
    def groups(self) -> Tensor:
        """In which file each image lies."""

    @abstractmethod
    def some(self, numbers: Sequence[int]) -> Self:
        """The images with these numbers."""

    @abstractmethod
    def lines(self) -> Iterator[str]:
        """A line for every image, of what `told_by` says."""

    def read_first(self, every: bool) -> Sequence[int]:
        """The images whose content is hashed and opened before training."""
        return read_first(range(len(self)), every)


class PartSamples(ShardSamples):
    """Images whose content is a part of a larger file, such as an archive."""

    def __init__(
        self, names: Sequence[str], labels: Tensor, files: Sequence[str], places: np.ndarray
    ) -> None:
        """`places` has a row for every image: the number of its file, its start, its size."""
        self._names, self.labels, self._files = Packed(names), labels, list(files)
        self.places = places
        self._stamps = [Stamp.of(file) for file in self._files]

    def name(self, number: int) -> str:
        return f"{self._files[int(self.places[number, 0])]}:{self._names[number]}"

    def groups(self) -> Tensor:
        return torch.from_numpy(self.places[:, 0].copy())

    def read(self, numbers: Sequence[int]) -> list[bytes]:
        rows = self.places[list(numbers)].tolist()
        places = [
            Extent(self._files[file], start, size, self._stamps[file]) for file, start, size in rows
        ]
        found = read_places(places)
        for place, content in zip(places, found, strict=True):
            if len(content) != place.size:
                raise InputError(
                    f"{place.file!r} is shorter than when the training began: {place.size} bytes "
                    f"at {place.start} were there, and {len(content)} are. Do not write data anew "
                    f"while they are used."
                )
        return found

    def some(self, numbers: Sequence[int]) -> PartSamples:
        chosen = list(numbers)
        names = [self._names[number] for number in chosen]
        return PartSamples(names, self.labels[chosen], self._files, self.places[chosen])

    def lines(self) -> Iterator[str]:
        for number, (file, _, size) in enumerate(self.places.tolist()):
            path = self._files[file].rpartition("/")[2]
            yield f"{path}/{self._names[number]}\t{size}\t{int(self.labels[number])}\n"


def read_places(places: Sequence[Extent]) -> list[bytes]:
    """The content at these places, asked for at the same time if they are at an address."""
    if not places:
        return []
    if "://" not in places[0].file:
        return [_part(place) for place in places]
    import fsspec

    # Made anew in each process: connections do not survive a fork. fsspec remembers it.
    system, _ = fsspec.core.url_to_fs(places[0].file)
    ends = [place.start + place.size for place in places]
    found = system.cat_ranges(
        [place.file for place in places], [place.start for place in places], ends, on_error="return"
    )
    for place, content in zip(places, found, strict=True):
        if isinstance(content, BaseException):
            raise InputError(
                f"{place.file!r} cannot be read at {place.start} ({content}). The run can be taken "
                f"up when it can be."
            ) from content
    return [bytes(content) for content in found]


def _part(place: Extent) -> bytes:
    try:
        with open(place.file, "rb") as file:
            now = Stamp.of(file.fileno())
            file.seek(place.start)
            content = file.read(place.size)
    except OSError as error:
        raise InputError(
            f"{place.file!r} cannot be read ({error.strerror}), and was there when the training "
            f"began."
        ) from error
    check_unchanged(place.file, place.stamp, now)
    return content


def addresses(system: FileSystem, files: Sequence[str]) -> list[str]:
    """How files of a file system of fsspec are called from anywhere: by their path on this machine,
    else with the name of the system in front."""
    from fsspec.implementations.local import LocalFileSystem

    if isinstance(system, LocalFileSystem):
        return list(files)
    return [str(system.unstrip_protocol(file)) for file in files]


def parts_checksum(parts: Sequence[ShardSamples], every: bool) -> str:
    """SHA-256 of a line for every image and the content of those that are read first, the same
    wherever the files lie. Times are not part of it: a copy has others."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(f"{len(part)} images\n".encode())
        for line in part.lines():
            whole.update(line.encode("utf-8", "surrogateescape"))
        numbers = part.read_first(every)
        for start in range(0, len(numbers), 64):
            for content in part.read(numbers[start : start + 64]):
                whole.update(hashlib.sha256(content).digest())
    return whole.hexdigest()
