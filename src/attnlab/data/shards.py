"""Photographs in shards: tar archives as WebDataset writes them, `key.jpg` beside `key.cls`, in a
folder or at an address of fsspec (`s3://bucket/folder`).

Each shard is gone through once, to learn where its images lie; what was found is kept until the
shard changes. From then on images are read one by one, in any order, by any worker.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import tarfile
import zipfile
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import torch

from attnlab._errors import InputError, OptionError, check_options
from attnlab._files import write_whole
from attnlab._folders import cache_folder
from attnlab._spread import evenly_spread
from attnlab._words import listed
from attnlab.data.batches import Facts
from attnlab.data.config import DataConfig
from attnlab.data.memory import commonest_share, lacking_classes, number_of_classes
from attnlab.data.pictures import SUFFIXES, opened
from attnlab.data.samples import PartSamples, parts_checksum, read_first, sampled_note
from attnlab.data.stream import StreamData, test_fit
from attnlab.networks.preprocessing import IMAGENET, Preprocessing

_READ_AHEAD = 8 * 2**20
"""Bytes of one request while a shard at an address is gone through."""
_END = 512
"""An archive ends in blocks of zeros; one that does not was cut off."""


class _Shard(NamedTuple):
    """The images of one archive, in its order."""

    names: list[str]
    labels: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray


class FoundShards(NamedTuple):
    """What is in the shards that `config` chooses."""

    train: PartSamples
    test: PartSamples
    together: int | None
    """Of how many shards images are shuffled at a time; None of all."""


def read_shards(
    root: str,
    train: str = "train*.tar",
    test: str = "val*.tar",
    label: str = "cls",
    together: int | None = None,
) -> FoundShards:
    """The shards of a folder or address whose names match; nothing is decoded.

    Args:
        root: where they are.
        train: their names, with * for any characters.
        test: those of the test images.
        label: the ending of the member that holds the number of the class.
        together: of how many shards images are shuffled at a time; of all when None.
    """
    if together is not None and together < 1:
        raise OptionError(f"Expected together to be at least 1 but got {together}.")
    return FoundShards(_part(root, train, label), _part(root, test, label), together)


def load_shards(config: DataConfig, preprocessing: Preprocessing | None = None) -> StreamData:
    """The images of `config`, read while they are used."""
    if config.size is None and preprocessing is None:
        raise OptionError("Data 'shards' needs the side of the images, size = 224 for example.")
    found = find_shards(config)
    side = config.size or 0
    known = preprocessing or Preprocessing((3, side, side), *IMAGENET)
    classes = number_of_classes(found.train.labels, f"{config.title} (training)")
    for part in (found.train, found.test):
        _check_labels(part, classes)
    for part in (found.train, found.test):
        _open_some(part, config.hash_all)
    names = [str(number) for number in range(classes)]
    subsets = config.train_subset, config.test_subset
    labels = found.train.labels, found.test.labels
    facts = Facts(
        config.title,
        "class",
        classes,
        known.size,
        len(found.train),
        len(found.test),
        known.mean,
        known.std,
        shards_checksum(config, found),
        notes=(
            *lacking_classes(*labels, names, subsets),
            *sampled_note(max(len(part) for part in labels), config.hash_all),
        ),
        chance=commonest_share(labels[1]),
    )
    fit = test_fit(known, config.augmentation)
    return StreamData(
        facts, found.train, found.test, config.augmentation, fit, together=found.together
    )


def shards_checksum(config: DataConfig, found: FoundShards | None = None) -> str:
    """Return what tells these images from others, wherever the shards lie."""
    parts = find_shards(config) if found is None else found
    return parts_checksum((parts.train, parts.test), config.hash_all)


def find_shards(config: DataConfig) -> FoundShards:
    """The images that `config` chooses, none of them decoded."""
    check_options("Data 'shards'", read_shards, config.options, skip=("root",))
    if config.root is None:
        raise OptionError(
            "Data 'shards' needs a folder or an address, root = 'path/of/the/shards' or "
            "'s3://bucket/folder'."
        )
    options: dict[str, Any] = dict(config.options)
    found = read_shards(config.root, **options)
    train, test = (
        part.some(evenly_spread(len(part), number))
        for part, number in ((found.train, config.train_subset), (found.test, config.test_subset))
    )
    return FoundShards(train, test, found.together)


def _part(root: str, pattern: str, label: str) -> PartSamples:
    """The images of the shards whose names match."""
    system, path = _system(root)
    there = [str(each) for each in _listing(system, path, root)]
    files = sorted(each for each in there if fnmatch(each.rpartition("/")[2], pattern))
    if not files:
        names = [each.rpartition("/")[2] for each in sorted(there)]
        raise InputError(
            f"There is no shard {pattern!r} in {root!r}; it has {listed(names) or 'nothing'}. "
            f"Expected tar archives; data.options.train and test say how they are called."
        )
    shards = [_shard(system, file, label) for file in files]
    places = np.concatenate(
        [
            np.stack([np.full_like(shard.starts, number), shard.starts, shard.sizes], 1)
            for number, shard in enumerate(shards)
        ]
    )
    labels = torch.from_numpy(np.concatenate([shard.labels for shard in shards]))
    local = "://" not in root
    full = [file if local else str(system.unstrip_protocol(file)) for file in files]
    return PartSamples([n for shard in shards for n in shard.names], labels, full, places)


def _system(root: str) -> tuple[Any, str]:
    import fsspec  # a tenth of a second that no other data need

    try:
        system, path = fsspec.core.url_to_fs(root if "://" in root else os.path.abspath(root))
    except (ImportError, ValueError) as error:
        raise InputError(f"The address {root!r} cannot be opened: {error}.") from error
    return system, path


def _listing(system: Any, path: str, root: str) -> Sequence[str]:
    try:
        system.invalidate_cache()
        found: Sequence[str] = system.ls(path, detail=False)
    except FileNotFoundError:
        raise InputError(f"There is no folder {root!r}.") from None
    except OSError as error:
        raise InputError(f"{root!r} cannot be listed ({error}).") from error
    return found


def _shard(system: Any, file: str, label: str) -> _Shard:
    """The images of one shard, gone through once as long as it does not change."""
    key = hashlib.sha256(f"1 {system.ukey(file)} {file} {label}".encode()).hexdigest()
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


def _gone_through(system: Any, file: str, label: str) -> _Shard:
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
    names = list(images)
    starts, sizes = (np.array([images[n][i] for n in names], np.int64) for i in (0, 1))
    return _Shard(names, np.array([labels[n] for n in names], np.int64), starts, sizes)


def _members(
    opened_file: IO[bytes], file: str, label: str
) -> tuple[dict[str, tuple[int, int]], dict[str, int]]:
    """By key, where each image lies, and each class."""
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
                labels[key] = _class(archive, member, file)
            elif f".{ending.lower()}" in SUFFIXES:
                if key in images:
                    raise InputError(f"{file!r} has two images of the key {key!r}.")
                images[key] = member.offset_data, member.size
        end = archive.offset
    opened_file.seek(end)
    if len(opened_file.read(_END)) < _END:
        raise InputError(
            f"{file!r} does not end as a tar archive does: it was cut off, or is still written."
        )
    return images, labels


def _class(archive: tarfile.TarFile, member: tarfile.TarInfo, file: str) -> int:
    content = archive.extractfile(member)
    text = b"" if content is None else content.read(64)
    try:
        return int(text)
    except ValueError:
        raise InputError(
            f"{file!r}: expected {member.name!r} to hold the number of a class but got {text!r}."
        ) from None


def _check_labels(part: PartSamples, classes: int) -> None:
    wrong = ((part.labels < 0) | (part.labels >= classes)).nonzero().flatten()
    if len(wrong):
        first = int(wrong[0])
        raise InputError(
            f"Expected classes from 0 to {classes - 1}, those of the training images, but "
            f"{part.name(first)!r} has class {int(part.labels[first])}."
        )


def _open_some(part: PartSamples, every: bool) -> None:
    numbers = read_first(range(len(part)), every)
    for start in range(0, len(numbers), 64):
        some = numbers[start : start + 64]
        for number, content in zip(some, part.read(some), strict=True):
            opened(content, lambda image: image.verify(), part.name(number))
