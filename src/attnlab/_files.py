"""Files that are whole or not there, even after a power cut."""

from __future__ import annotations

import errno
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from attnlab._errors import AttnlabError

_FULL = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file would be larger than the limit of this process or file system",
}
_PARTIAL = ".partial"


class DiskFullError(AttnlabError, OSError):
    """Something could not be written for lack of space; what was there before is untouched."""


def write_whole(path: Path, content: bytes | str) -> Path:
    """Write `content` to `path`: readers see the old file or the new, never a part."""
    data = content.encode() if isinstance(content, str) else content
    partial = path.with_name(f".{path.name}.{_unique()}{_PARTIAL}")
    with _in_place_of(path, partial, f" ({len(data):,} bytes)"):
        partial.write_bytes(data)
    return path


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a path beside `path`, with its suffix, for writers that need one. What they wrote takes
    the place of `path` when the block ends without an error."""
    partial = path.with_name(f".{path.stem}.{_unique()}{_PARTIAL}{path.suffix}")
    with _in_place_of(path, partial):
        yield partial


def _unique() -> str:
    """A part of a name that nobody else has: threads share the number of their process, and
    machines that share a folder have processes with the same number."""
    return secrets.token_hex(8)


@contextmanager
def unless_read_only(folder: Path) -> Iterator[None]:
    """Writing that may be left out where `folder` can only be read."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        if os.access(folder, os.W_OK):
            raise


LONG_AGO = 3600.0
"""Seconds after which nobody still writes a partial file: writing takes seconds."""


def remove_partial(folder: Path, older_than: float = 0.0) -> None:
    """Remove what processes that were killed while writing left behind. In a folder that others may
    write to at the same time, only what is more than `older_than` seconds old."""
    latest = time.time() - older_than
    for pattern in (f".*{_PARTIAL}", f".*{_PARTIAL}.*"):
        for partial in folder.glob(pattern):
            with suppress(FileNotFoundError):  # its writer was quicker
                if not older_than or partial.stat().st_mtime <= latest:
                    partial.unlink()


@contextmanager
def _in_place_of(path: Path, partial: Path, size: str = "") -> Iterator[None]:
    folder = path.parent
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "Not a folder", str(folder))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
        _sync(partial)
        os.replace(partial, path)
        _sync(path.parent)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise DiskFullError(
            f"Could not write {path}{size}: {_FULL[error.errno]}. Files written before are whole. "
            f"Make room and run the same again: training resumes from the last checkpoint."
        ) from error
    finally:
        partial.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Have the system write a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
