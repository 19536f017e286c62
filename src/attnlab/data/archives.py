"""Tar archives as WebDataset writes them: `key.jpg` beside `key.cls`.

Each is gone through once, to learn where its images lie; what was found is kept until the archive
changes. From then on images are read one by one, in any order, by any worker.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import torch

from attnlab._address import FileSystem
from attnlab._errors import InputError, OptionError
from attnlab._files import write_whole
from attnlab._folders import cache_folder
from attnlab._words import listed
from attnlab.data.pictures import SUFFIXES
from attnlab.data.samples import PartSamples, addresses

_READ_AHEAD = 8 * 2**20
"""Bytes of one request while an archive at an address is gone through."""
_END = 512
"""An archive ends in blocks of zeros; one that does not was cut off, or is damaged there: Python's
reader takes a header that it cannot read for the end of the archive."""
_PADDING = 2**20
"""Bytes that are read at a time of what comes after the end."""


class _Shard(NamedTuple):
    """The images of one archive, in its order."""

    names: list[str]
    labels: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray


def read_archives(
    system: FileSystem, files: Sequence[str], label: str | None, image: str | None
) -> PartSamples:
    """The images of tar archives. `label` is the ending of the member with the number of the class;
    there is no choice of the `image`, which every ending of an image marks."""
    if image is not None:
        raise OptionError(
            f"data.options.image names a column of Parquet files, and these are tar archives, "
            f"whose images are the members that end in {', '.join(SUFFIXES)}. Leave it out."
        )
    shards = [_shard(system, file, label or "cls") for file in files]
    places = np.concatenate(
        [
            np.stack([np.full_like(shard.starts, number), shard.starts, shard.sizes], 1)
            for number, shard in enumerate(shards)
        ]
    )
    labels = torch.from_numpy(np.concatenate([shard.labels for shard in shards]))
    names = [name for shard in shards for name in shard.names]
    return PartSamples(names, labels, addresses(system, files), places)


def _shard(system: FileSystem, file: str, label: str) -> _Shard:
    """The images of one shard, gone through once as long as it does not change."""
    # Not `ukey`, which of an address of http is the address alone, whatever lies there by now.
    stamp = sorted((name, str(value)) for name, value in system.info(file).items())
    key = hashlib.sha256(f"2 {stamp} {file} {label}".encode()).hexdigest()
    kept = cache_folder() / "shards" / f"{key}.npz"
    damaged = OSError, KeyError, ValueError, zipfile.BadZipFile
    with contextlib.suppress(*damaged), np.load(kept, allow_pickle=False) as found:
        names = found["names"].tobytes().decode("utf-8", "surrogateescape").split("\0")
        return _Shard(names, found["labels"], found["starts"], found["sizes"])
    shard = _gone_through(system, file, label)
    _keep(kept, shard)
    return shard


def _keep(file: Path, shard: _Shard) -> None:
    """Only time is lost if it cannot be written."""
    buffer = io.BytesIO()
    names = np.frombuffer("\0".join(shard.names).encode("utf-8", "surrogateescape"), np.uint8)
    np.savez(buffer, names=names, labels=shard.labels, starts=shard.starts, sizes=shard.sizes)
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(file, buffer.getvalue())


def _gone_through(system: FileSystem, file: str, label: str) -> _Shard:
    try:
        with system.open(file, "rb", block_size=_READ_AHEAD) as opened_file:
            images, labels = _members(opened_file, file, label)
    except tarfile.TarError as error:
        raise InputError(
            f"{file!r} is not a whole tar archive ({error}). Expected one that is not compressed: "
            f"an image in the middle of it is read without what is before."
        ) from error
    except OSError as error:
        raise InputError(f"{file!r} cannot be read ({error}).") from error
    if not images:
        raise InputError(
            f"{file!r} has no image. Expected members that end in {', '.join(SUFFIXES)}."
        )
    lonely = [key for key in images if key not in labels]
    if lonely:
        raise InputError(
            f"{file!r}: {len(lonely)} of {len(images)} images have no member .{label} with the "
            f"number of their class: {listed(lonely)}. data.options.label says how it ends."
        )
    without = [key for key in labels if key not in images]
    if without:
        raise InputError(
            f"{file!r}: {len(without)} of {len(labels)} classes have no image: {listed(without)}. "
            f"Expected beside each a member that ends in {', '.join(SUFFIXES)} and is no link: "
            f"convert the images that end otherwise, or take the classes out."
        )
    names = list(images)
    starts, sizes = (np.array([images[n][i] for n in names], np.int64) for i in (0, 1))
    return _Shard(names, np.array([labels[n] for n in names], np.int64), starts, sizes)


def _members(
    opened_file: IO[bytes], file: str, label: str
) -> tuple[dict[str, tuple[int, int]], dict[str, int]]:
    """Return where each image and each class lies, by key."""
    images: dict[str, tuple[int, int]] = {}
    labels: dict[str, int] = {}
    with tarfile.open(fileobj=opened_file, mode="r:") as archive:
        for member in archive:
            folder, _, base = member.name.rpartition("/")
            stem, _, ending = base.partition(".")
            key = f"{folder}/{stem}" if folder else stem
            if not member.isfile() or not stem:
                continue
            if ending.lower() == label:
                if key in labels:
                    raise InputError(f"{file!r} has two classes of the key {key!r}.")
                labels[key] = _class(archive, member, file)
            elif f".{ending.lower()}" in SUFFIXES:
                if key in images:
                    raise InputError(f"{file!r} has two images of the key {key!r}.")
                images[key] = member.offset_data, member.size
        end = archive.offset
    _check_end(opened_file, end, file)
    return images, labels


def _check_end(opened_file: IO[bytes], end: int, file: str) -> None:
    """Refuse an archive that goes on, or does not end, where its members seem to."""
    opened_file.seek(end)
    block = opened_file.read(_END)
    if len(block) < _END:
        raise InputError(
            f"{file!r} does not end as a tar archive does: it was cut off, or is still written."
        )
    if any(block):
        raise InputError(
            f"{file!r} is damaged at byte {end}: there is neither a member nor the end of the "
            f"archive. Write it anew."
        )
    while block:
        block = opened_file.read(_PADDING)
        if any(block):
            raise InputError(
                f"{file!r} goes on after its end at byte {end}, as archives do that were written "
                f"one after the other into one file. What comes there would not be read: write "
                f"them to files of their own."
            )


def _class(archive: tarfile.TarFile, member: tarfile.TarInfo, file: str) -> int:
    content = archive.extractfile(member)
    text = b"" if content is None else content.read(64)
    try:
        return int(text)
    except ValueError:
        raise InputError(
            f"{file!r}: expected {member.name!r} to hold the number of a class but got {text!r}."
        ) from None
