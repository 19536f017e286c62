"""What tables and pages take of a finished run, in one small file of its directory.

A run has a dozen files with hundreds of kilobytes of measurements, and a study has thousands of
runs: to read all of them takes minutes, and a table takes a few numbers of each. So whoever reads a
finished run that is whole leaves a digest of it, and who comes next reads that. A digest holds as
long as no file of the run was written, added or removed since; else it is made anew. It says
nothing that the other files do not say, and may be removed at any time.

That a file was written is seen by its size, its inode and its times, not by its content. What a
disk loses by itself is not written: then the digest still holds what was proven when it was made,
so the table is right, and the damage is found by whoever reads the file itself, or removes the
digest.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from attnlab._files import unless_read_only, write_whole
from attnlab.results.bundle import ELSEWHERE, RECORD
from attnlab.results.damage import JsonObject

FILE = "digest.json"
_FORMAT = "attnlab digest 2"
_OF_THIS_MACHINE = (".lock", ".manifest.lock", RECORD, ELSEWHERE)
_OF_THE_WORK = frozenset(
    (FILE, *_OF_THIS_MACHINE, "owner.json", "log.txt", "checkpoints", "source")
)
"""What changes without changing what a run says."""
SETTLED = 0.1
"""Seconds after which a file that is written again has another time: clocks of most file systems
tick a hundred times a second or more often."""
_COARSE = 2.0
"""The same, where all times are whole seconds: those of FAT have two of them, some of NFS one."""


def signature(directory: Path) -> str | None:
    """Names, sizes, inodes and times of all files of a run; None if one was written just now, so
    that it may be written once more without anybody noticing."""
    digest, newest, whole_seconds = hashlib.sha256(), 0, True
    for name, found in _files(directory, ""):
        # The second time is that of any change, which no program can set.
        times = found.st_mtime_ns, found.st_ctime_ns
        text = f"{name}\0{found.st_size}\0{found.st_ino}\0{times[0]}\0{times[1]}\n"
        digest.update(text.encode())
        newest = max(newest, *times)
        whole_seconds &= not any(each % 10**9 for each in times)
    if time.time_ns() - newest < (_COARSE if whole_seconds else SETTLED) * 1e9:
        return None
    return digest.hexdigest()


def _files(directory: Path | str, before: str) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(directory) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        if not before and entry.name in _OF_THE_WORK:
            continue
        if entry.is_dir():
            yield from _files(entry.path, f"{before}{entry.name}/")
        else:
            yield f"{before}{entry.name}", entry.stat()


@dataclass(frozen=True)
class EpochCurve:
    """The epochs of a run, as far as a page over many runs draws them."""

    rates: tuple[float, ...]
    """The learning rates."""
    values: tuple[float | None, ...]
    """The result's metric on the test images; None if it has no meaning for them."""
    losses: tuple[float | None, ...]
    """The losses of the training; None if they are not known."""
    seconds: tuple[float, ...]
    """The seconds of the last few epochs."""


@dataclass(frozen=True)
class DigestFacts:
    """What tables and pages take of most runs, as plain data that was validated when the digest was
    made: to validate thousands of runs again takes seconds."""

    result: JsonObject
    config: JsonObject
    data: JsonObject | None
    finished: float
    """When the run was finished, in seconds since 1970."""
    starts: list[JsonObject]
    curve: dict[str, list[float]]
    measured: dict[str, JsonObject]
    """The settings and notes of what was measured, by measurement."""


@dataclass(frozen=True)
class Digest:
    """A finished run without its bulk, as plain data."""

    facts: DigestFacts
    measured: dict[str, str]
    """What was found, by measurement, each as JSON: most readers ask for one or two."""


def read_digest(directory: Path) -> Digest | None:
    """The digest of a run; None if there is none that holds."""
    try:
        head, facts, measured = (directory / FILE).read_bytes().rstrip(b"\n").split(b"\n")
        if json.loads(head) != _head(directory, facts, measured):
            return None
        return Digest(DigestFacts(**json.loads(facts)), json.loads(measured))
    except (OSError, ValueError, TypeError):  # TypeError: the facts are not those of `DigestFacts`
        return None


def write_digest(
    directory: Path, before: str, facts: DigestFacts, measured: dict[str, str]
) -> Digest | None:
    """Write the digest of a run that was read when its signature was `before`, if the directory
    can be written; None if the run has changed since."""
    lines = [json.dumps(each, ensure_ascii=False).encode() for each in (vars(facts), measured)]
    head = _head(directory, *lines)
    if head["files"] != before:
        return None
    with unless_read_only(directory):
        content = b"\n".join((json.dumps(head).encode(), *lines)) + b"\n"
        write_whole(directory / FILE, content)
    return Digest(facts, measured)


def _head(directory: Path, facts: bytes, measured: bytes) -> dict[str, str | None]:
    """The first line: it holds of the files as they are, and of the lines after it."""
    import attnlab

    return {
        "format": _FORMAT,
        "attnlab": attnlab.__version__,
        "files": signature(directory),
        "facts": hashlib.sha256(facts).hexdigest(),
        "measured": hashlib.sha256(measured).hexdigest(),
    }
