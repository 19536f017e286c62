"""SHA-256 of files, the same on every machine, and read only once as long as they do not change.

A file is taken to be unchanged if its path, size, inode and time stamps are. Time stamps have a
grain, so a checksum is remembered only if the file was last touched well before it was read: what
is written later then has another stamp. The time of the last change of the inode (ctime) is part
of it, because unpacked and copied files keep the modification time of their origin, and two files
of an archive that change places often agree in size and modification time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import time
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import NamedTuple

from attnlab._errors import InputError
from attnlab._folders import cache_folder

_GRAIN = 2 * 10**9
"""Nanoseconds that a file must have been left alone; FAT's time stamps are the coarsest, 2 s."""
_CHUNK = 500
"""Files at a time: what was read is remembered after each, and sqlite takes 999 values."""
_THREADS = 8
"""That read files at the same time: hashing releases the interpreter's lock, and disks answer
several at once."""
_DAYS = 180
"""After these a checksum is forgotten, or files that are long gone would fill the disk."""

_TABLE = """CREATE TABLE IF NOT EXISTS checksum (
    path BLOB PRIMARY KEY, stamp TEXT NOT NULL, sha256 TEXT NOT NULL,
    proof TEXT NOT NULL, made INTEGER NOT NULL) WITHOUT ROWID"""


def file_checksum(path: str | Path) -> str:
    """SHA-256 of a file's content, as `sha256sum` prints it."""
    return _checksums([Path(path)])[0]


def files_checksum(folder: str | Path, files: Iterable[str | Path]) -> str:
    """SHA-256 of the names, relative to `folder`, and the contents of `files` inside it.

    It is that of the lines that `sha256sum` prints for them in `folder`, sorted by name (bytes of
    UTF-8): neither the order of `files` nor the place of `folder` matters.
    """
    paths = list({Path(file) for file in files})
    if not paths:
        raise InputError(f"Expected files in {str(folder)!r} to take a checksum of but got none.")
    names = [_name(path, Path(folder)) for path in paths]
    return names_checksum(zip(names, _checksums(paths), strict=True))


def names_checksum(files: Iterable[tuple[bytes, str]]) -> str:
    """The same of names and the SHA-256 of their content."""
    whole = hashlib.sha256()
    for name, checksum in sorted(files):
        escaped = name.replace(b"\\", b"\\\\").replace(b"\n", b"\\n").replace(b"\r", b"\\r")
        mark = b"" if escaped == name else b"\\"
        whole.update(mark + checksum.encode() + b"  " + escaped + b"\n")
    return whole.hexdigest()


def _name(path: Path, folder: Path) -> bytes:
    try:
        return composed(path.relative_to(folder).as_posix())
    except ValueError:
        raise InputError(f"Expected files inside {str(folder)!r} but got {str(path)!r}.") from None


def composed(name: str) -> bytes:
    """Composed (NFC): some file systems hand out ü as one character, some as two."""
    return unicodedata.normalize("NFC", name).encode("utf-8", "surrogateescape")


class _Found(NamedTuple):
    stamp: str
    sha256: str
    new: bool
    """Whether it was read just now, and a later change would show in the stamp."""


def _checksums(paths: Sequence[Path]) -> list[str]:
    absolute = [os.path.abspath(path) for path in paths]
    checksums: list[str] = []
    with contextlib.closing(_Memory()) as memory, ThreadPoolExecutor(_THREADS) as pool:
        for start in range(0, len(absolute), _CHUNK):
            chunk = absolute[start : start + _CHUNK]
            known = memory.recall(chunk)
            parts = pool.map(
                _found_all, (chunk[i::_THREADS] for i in range(_THREADS)), repeat(known)
            )
            found = {path: each for part in parts for path, each in part.items()}
            memory.keep({path: each for path, each in found.items() if each.new})
            checksums += [found[path].sha256 for path in chunk]
    return checksums


def _found_all(paths: Sequence[str], known: Mapping[str, _Found]) -> dict[str, _Found]:
    return {path: _found(path, known.get(path)) for path in paths}


def _found(path: str, known: _Found | None) -> _Found:
    try:
        if known is not None and _stamp(os.stat(path)) == known.stamp:
            return known
        began = time.time_ns()
        with open(path, "rb") as file:
            before = os.fstat(file.fileno())
            checksum = hashlib.file_digest(file, "sha256").hexdigest()
            after = os.fstat(file.fileno())
    except OSError as error:
        raise InputError(f"Cannot take the checksum of {path!r}: {error.strerror}.") from error
    if _stamp(before) != _stamp(after):
        raise InputError(
            f"{path!r} was changed while its checksum was taken. Wait until it is written, and try "
            f"again."
        )
    touched = max(before.st_mtime_ns, before.st_ctime_ns)
    return _Found(_stamp(before), checksum, new=touched < began - _GRAIN)


def _stamp(facts: os.stat_result) -> str:
    return f"{facts.st_size} {facts.st_mtime_ns} {facts.st_ctime_ns} {facts.st_ino}"


class _Memory:
    """Checksums by path, in a file that all processes of a user share.

    It only saves time: without a place to write, or while others hold the file too long, nothing is
    remembered, and a damaged file is removed.
    """

    def __init__(self) -> None:
        self._connection: sqlite3.Connection | None = None
        self._swept = False
        with self._forgiving():
            self._file = cache_folder() / "checksums-1.sqlite"
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._connection = sqlite3.connect(self._file, timeout=10)
            self._connection.text_factory = lambda text: text.decode(errors="replace")  # if damaged
            self._connection.execute(_TABLE)

    def recall(self, paths: Sequence[str]) -> dict[str, _Found]:
        """Return the checksums that are remembered of `paths`."""
        known: dict[str, _Found] = {}
        with self._forgiving():
            if self._connection is None:
                return {}
            marks = ", ".join("?" * len(paths))
            rows = self._connection.execute(
                f"SELECT path, stamp, sha256, proof FROM checksum WHERE path IN ({marks})",
                [os.fsencode(path) for path in paths],
            )
            for path, stamp, checksum, proof in rows:
                if proof != _proof(path, str(stamp), str(checksum)):
                    raise sqlite3.DatabaseError("a line of the file is damaged")
                known[os.fsdecode(path)] = _Found(stamp, checksum, new=False)
        return known

    def keep(self, found: dict[str, _Found]) -> None:
        """Remember what was read."""
        today = int(time.time() // 86400)
        rows = [
            (key := os.fsencode(path), each.stamp, each.sha256, _proof(key, *each[:2]), today)
            for path, each in found.items()
        ]
        with self._forgiving():
            if self._connection is None or not rows:
                return
            with self._connection:
                self._connection.executemany("REPLACE INTO checksum VALUES (?, ?, ?, ?, ?)", rows)
                if not self._swept:
                    self._connection.execute("DELETE FROM checksum WHERE made < ?", [today - _DAYS])
            self._swept = True

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @contextlib.contextmanager
    def _forgiving(self) -> Iterator[None]:
        """Go on without a memory if it fails; remove the file if what is in it is wrong."""
        try:
            yield
        except (OSError, RuntimeError, sqlite3.OperationalError):  # no home, no right, no turn
            self.close()
        except sqlite3.DatabaseError:
            self.close()
            # A process that still writes to the removed file can leave its journal to the next one.
            # What that spoils, sqlite or the proof of a line finds.
            for name in (self._file, f"{self._file}-journal"):
                with contextlib.suppress(OSError):
                    os.unlink(name)


def _proof(path: bytes, stamp: str, checksum: str) -> str:
    """Sqlite does not notice a flipped bit; this does."""
    text = b"\0".join((path, stamp.encode(), checksum.encode()))
    return hashlib.blake2b(text, digest_size=8).hexdigest()
