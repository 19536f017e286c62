"""Photographs in shards, in a folder or at an address of fsspec (`s3://bucket/folder`): tar
archives of WebDataset or Parquet files of the Hugging Face hub, told apart by their ending."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatch
from typing import Any, NamedTuple

import torch

from attnlab._address import FileSystem, file_system
from attnlab._errors import InputError, OptionError, check_options
from attnlab._seeds import stream
from attnlab._spread import evenly_spread
from attnlab._words import listed
from attnlab.data.archives import read_archives
from attnlab.data.batches import Facts
from attnlab.data.config import DataConfig
from attnlab.data.memory import commonest_share, lacking_classes, number_of_classes
from attnlab.data.parquet import ENDING, TOGETHER, read_row_groups
from attnlab.data.pictures import opened
from attnlab.data.samples import ShardSamples, parts_checksum, sampled_note
from attnlab.data.stream import StreamData, test_fit
from attnlab.networks.preprocessing import IMAGENET, Preprocessing

_TRAIN = ("train*.tar", f"train*{ENDING}")
_TEST = ("val*.tar", f"test*{ENDING}", f"val*{ENDING}")
"""Names that are looked for where none are given, the first that there are: as WebDataset's are
usually called, and those of the hub."""
_LEAST_CLASSES = 0.5
"""Of the classes that a random order would give to images that are shuffled together."""
_NUMBERED = re.compile(r"(?P<name>.*)-(?P<number>\d+)-of-(?P<of>\d+)\b.*")


class FoundShards(NamedTuple):
    """What is in the shards that `config` chooses."""

    train: ShardSamples
    test: ShardSamples
    together: int | None
    """The number of files, or row groups of Parquet, whose images are shuffled together; None for
    all."""


def read_shards(
    root: str,
    train: str | None = None,
    test: str | None = None,
    label: str | None = None,
    image: str | None = None,
    together: int | None = None,
) -> FoundShards:
    """The shards of a folder or address whose names match; nothing is decoded.

    Args:
        root: where they are.
        train: their names, with * for any characters; the usual ones when None.
        test: those of the test images.
        label: the ending of the member that holds the number of the class, `cls` when None; of
            Parquet the column, the one that says it is a class when None.
        image: of Parquet the column of the images, the one that says so when None.
        together: of how many shards images are shuffled at a time, of Parquet of how many row
            groups; when None of all shards, and of 8 row groups.
    """
    if together is not None and together < 1:
        raise OptionError(f"Expected together to be at least 1 but got {together}.")
    parts = [
        _part(root, names, label, image, together or TOGETHER)
        for names in ((train,) if train else _TRAIN, (test,) if test else _TEST)
    ]
    usual = TOGETHER if parts[0].in_groups else None
    return FoundShards(parts[0], parts[1], together or usual)


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
            *_sorted_note(found),
            *_sampled(found, config.hash_all),
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


def _part(
    root: str, patterns: Sequence[str], label: str | None, image: str | None, together: int
) -> ShardSamples:
    """The images of the shards whose names match the first pattern that any name matches."""
    system, path = file_system(root)
    there = sorted(str(each) for each in _listing(system, path, root))
    names = [each.rpartition("/")[2] for each in there]
    for pattern in patterns:
        files = [f for f, name in zip(there, names, strict=True) if fnmatch(name, pattern)]
        if files:
            break
    else:
        raise InputError(
            f"There is no shard {' or '.join(map(repr, patterns))} in {root!r}; it has "
            f"{listed(names) or 'nothing'}. Expected tar archives or Parquet files; "
            f"data.options.train and test say how they are called."
        )
    _check_complete([file.rpartition("/")[2] for file in files], names, root)
    rows = [file for file in files if file.endswith(ENDING)]
    if not rows:
        return read_archives(system, files, label, image)
    if len(rows) < len(files):
        raise InputError(
            f"{pattern!r} in {root!r} matches {len(rows)} Parquet files and "
            f"{len(files) - len(rows)} others: {listed(sorted({*files} - {*rows}))}. Expected "
            f"either; data.options.train and test say how they are called."
        )
    return read_row_groups(system, files, label, image, together)


def _check_complete(chosen: Sequence[str], there: Sequence[str], root: str) -> None:
    """Refuse what is left of a set of shards if their names say of how many it is. Which of them
    are used is for whoever names them to say."""
    used = {match.group("name", "of") for match in map(_NUMBERED.fullmatch, chosen) if match}
    found: dict[tuple[str, ...], set[int]] = {}
    for match in filter(None, map(_NUMBERED.fullmatch, there)):
        found.setdefault(match.group("name", "of"), set()).add(int(match["number"]))
    for name, of in sorted(used):
        numbers = found[name, of]
        begin = min(*numbers, 1)  # they are counted from 0 or from 1
        missing = [each for each in range(begin, begin + int(of)) if each not in numbers]
        if missing:
            raise InputError(
                f"{root!r} has {len(numbers)} of the {int(of)} files '{name}-…-of-{of}…', and not "
                f"number {listed(missing)}. Get the others, or rename those that are there if "
                f"they are all you want."
            )


def _listing(system: FileSystem, path: str, root: str) -> Sequence[str]:
    try:
        system.invalidate_cache()
        found: Sequence[str] = system.ls(path, detail=False)
    except FileNotFoundError:
        raise InputError(f"There is no folder {root!r}.") from None
    except OSError as error:
        raise InputError(f"{root!r} cannot be listed ({error}).") from error
    return found


def _check_labels(part: ShardSamples, classes: int) -> None:
    wrong = ((part.labels < 0) | (part.labels >= classes)).nonzero().flatten()
    if len(wrong):
        first = int(wrong[0])
        raise InputError(
            f"Expected classes from 0 to {classes - 1}, those of the training images, but "
            f"{part.name(first)!r} has class {int(part.labels[first])}."
        )


def _open_some(part: ShardSamples, every: bool) -> None:
    numbers = part.read_first(every)
    for start in range(0, len(numbers), 64):
        some = numbers[start : start + 64]
        for number, content in zip(some, part.read(some), strict=True):
            opened(content, lambda image: image.verify(), part.name(number))


def _sorted_note(found: FoundShards) -> list[str]:
    """That images which are shuffled together have few of the classes, if they do: of files that
    are sorted by class, batches would have one or two each."""
    if found.together is None:
        return []
    labels, groups = found.train.labels, found.train.groups()
    order = torch.randperm(int(groups.max()) + 1, generator=stream(0, "windows"))
    together = (order // found.together)[groups]
    shares = torch.bincount(labels) / len(labels)
    number = len(torch.unique(together * len(shares) + labels))
    sizes, times = torch.bincount(together).unique(return_counts=True)
    missing = (1 - shares) ** sizes[:, None]
    expected = float(((1 - missing).sum(1) * times).sum())
    if number > _LEAST_CLASSES * expected:
        return []
    many = int(times.sum())
    return [
        f"Sorted by class: images of {found.together} files or row groups are shuffled at a time, "
        f"which have {number / many:.0f} classes, and would have {expected / many:.0f} in "
        f"random order. Write the files in random order, or set data.options.together to more."
    ]


def _sampled(found: FoundShards, every: bool) -> list[str]:
    part = max(found.train, found.test, key=len)
    return sampled_note(len(part), len(part.read_first(every)), part.told_by)
