"""Checkpoints: one file per epoch, whole or not there, whose name carries its checksum."""

from __future__ import annotations

import hashlib
import io
import re
import warnings
from pathlib import Path
from typing import Any

import torch

from attnlab._files import remove_partial, write_whole

KEPT = 2
_NAME = re.compile(r"epoch-(\d+)-([0-9a-f]{16})\.pt")


class CheckpointWarning(UserWarning):
    """A checkpoint could not be used; an older one is, or the run starts again."""


def save_checkpoint(folder: Path, epoch: int, state: dict[str, Any]) -> Path:
    """Write the state after `epoch` epochs and drop all but the last two."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    data = buffer.getvalue()
    path = write_whole(folder / f"epoch-{epoch:04d}-{_checksum(data)}.pt", data)
    # Newest first. Of one epoch written twice, after a fall back, the older file goes as well.
    others = [other for other in _found(folder) if other != path]
    for other in others[KEPT - 1 :]:
        other.unlink(missing_ok=True)
    return path


def load_checkpoint(folder: Path) -> dict[str, Any] | None:
    """The newest whole state, or None. One that is damaged is passed over with a warning."""
    remove_partial(folder)
    for path in _found(folder):
        data = path.read_bytes()
        expected = _parts(path)[1]
        if _checksum(data) != expected:
            warnings.warn(
                f"Checkpoint {path} is damaged: its checksum is {_checksum(data)}, expected "
                f"{expected}. Falling back to the one before.",
                CheckpointWarning,
                stacklevel=2,
            )
            continue
        state: dict[str, Any] = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        return state
    return None


def _found(folder: Path) -> list[Path]:
    """Checkpoints, newest first."""
    paths = [path for path in folder.glob("epoch-*.pt") if _NAME.fullmatch(path.name)]
    return sorted(paths, key=lambda path: (_parts(path)[0], path.stat().st_mtime_ns), reverse=True)


def _parts(path: Path) -> tuple[int, str]:
    match = _NAME.fullmatch(path.name)
    assert match is not None
    return int(match[1]), match[2]


def _checksum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
