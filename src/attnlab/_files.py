"""Files that are whole or not there, also after a power cut."""

from __future__ import annotations

import errno
import os
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
    """Write beside `path`, sync, then rename: readers see the old file or the new, never a part."""
    data = content.encode() if isinstance(content, str) else content
    partial = path.with_name(f".{path.name}.{os.getpid()}{_PARTIAL}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(partial, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
        _sync_folder(path.parent)
    except OSError as error:
        partial.unlink(missing_ok=True)
        if error.errno not in _FULL:
            raise
        raise DiskFullError(
            f"Could not write {path} ({len(data):,} bytes): {_FULL[error.errno]}. Files written "
            f"before are whole. Make room and run the same again: training resumes from the last "
            f"checkpoint."
        ) from error
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return path


def remove_partial(folder: Path) -> None:
    """Remove what processes that were killed while writing left behind."""
    for partial in folder.glob(f".*{_PARTIAL}"):
        partial.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
