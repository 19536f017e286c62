"""What proves the files of a finished run: their checksums in one file, which is written last."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from filelock import FileLock
from pydantic import PositiveFloat

from attnlab._files import write_whole
from attnlab._strict import Strict
from attnlab.results.damage import DamagedFileError, read_object, reading, sealed, unsealed

FILE = "manifest.json"
_REMEDY = "Remove it and run the study again, which finishes the run from its last checkpoint."
_OF_THE_RUN = (
    "config.json",
    "identity.json",
    "data.json",
    "environment.json",
    "metrics.jsonl",
    "placement.json",
    "model.safetensors",
    "result.json",
)
_BELOW = ("measured/*.json", "pictures/*")


class Manifest(Strict):
    """manifest.json of a run's directory."""

    format: Literal[1] = 1
    run_id: str
    finished: PositiveFloat
    """When the run was finished first, in seconds since 1970. What was finished before a plan was
    made can have been seen by whoever made it."""
    files: dict[str, str]
    """SHA-256 by the name of the file, relative to the directory."""


def write_manifest(directory: Path, run_id: str) -> Manifest:
    """Write down the checksums of all files of a run that are there. A run that is finished again,
    because its result had been removed, keeps the time at which it was finished first."""
    below = (file for pattern in _BELOW for file in directory.glob(pattern))
    names = [name for name in _OF_THE_RUN if (directory / name).is_file()]
    names += [file.relative_to(directory).as_posix() for file in below if file.is_file()]
    with _locked(directory):
        return _write(directory, run_id, {}, names)


def add_to_manifest(directory: Path, names: Iterable[str]) -> None:
    """Take up files that were written after the run was finished: measurements and pictures."""
    with _locked(directory):
        before = read_manifest(directory)
        if before is not None:
            _write(directory, before.run_id, before.files, names)


def _write(directory: Path, run_id: str, known: dict[str, str], names: Iterable[str]) -> Manifest:
    try:
        before = read_manifest(directory)
    except DamagedFileError:  # the result that it belonged to was removed
        before = None
    same = before is not None and before.run_id == run_id
    finished = before.finished if before is not None and same else time.time()
    files = {**known, **{name: digest(directory / name) for name in names}}
    found = Manifest(run_id=run_id, finished=finished, files=dict(sorted(files.items())))
    write_whole(directory / FILE, sealed(found.model_dump(mode="json")))
    return found


def read_manifest(directory: Path) -> Manifest | None:
    """The manifest of a run; None of a run that is not finished."""
    file = directory / FILE
    if not file.is_file():
        return None
    found = read_object(file, _REMEDY)
    with reading(file, _REMEDY):
        return Manifest(**unsealed(found))


def digest(path: Path) -> str:
    """SHA-256 of what is in a file now; nothing is remembered."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _locked(directory: Path) -> FileLock:
    # Two processes may measure one run at a time.
    return FileLock(directory / ".manifest.lock")
