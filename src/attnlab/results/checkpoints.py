"""Checkpoints: a file each, whole or not there, whose name says when it was written and carries its
checksum."""

from __future__ import annotations

import hashlib
import io
import pickle
import re
import warnings
from pathlib import Path
from typing import Any

import torch

from attnlab._errors import WeightsError
from attnlab._files import remove_partial, write_whole

State = dict[str, Any]
"""What torch saves of networks, optimizers and generators, by name."""
KEPT = 2
"""Checkpoints that are kept: the older one is for a newest that turns out to be damaged."""
_NAME = re.compile(r"epoch-(\d+)(?:-step-(\d+))?-([0-9a-f]{16})\.pt")


class CheckpointWarning(UserWarning):
    """A checkpoint could not be used; an older one is, or the training starts again."""


def save_checkpoint(folder: Path, epoch: int, state: State, step: int = 0) -> Path:
    """Write the state after `epoch` epochs, and `step` steps of the next one; drop all but the last
    two."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    data = buffer.getvalue()
    at = f"epoch-{epoch:04d}" + (f"-step-{step:06d}" if step else "")
    path = write_whole(folder / f"{at}-{_checksum(data)}.pt", data)
    # Newest first. Of one moment written twice, after a fall back, the older file goes as well.
    others = [other for other in _found(folder) if other != path]
    for other in others[KEPT - 1 :]:
        other.unlink(missing_ok=True)
    return path


def load_checkpoint(folder: Path) -> State | None:
    """The newest whole state, or None. One that is damaged or cannot be read is passed over with a
    warning; if none can be read, that is an error."""
    remove_partial(folder)
    refused: WeightsError | None = None
    for path in _found(folder):
        data = path.read_bytes()
        expected = _parts(path)[-1]
        if _checksum(data) != expected:
            warnings.warn(
                f"Checkpoint {path} is damaged: its checksum is {_checksum(data)}, expected "
                f"{expected}. Falling back to the one before.",
                CheckpointWarning,
                stacklevel=2,
            )
            continue
        try:
            return _read(path, data)
        except WeightsError as error:
            refused = refused or error
            text = f"{error} Falling back to the one before."
            warnings.warn(text, CheckpointWarning, stacklevel=2)
    if refused is not None:
        raise refused
    return None


def remove_checkpoints(folder: Path) -> None:
    """Remove all of them, and the folder unless it has something else."""
    remove_partial(folder)
    for path in _found(folder):
        path.unlink(missing_ok=True)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _read(path: Path, data: bytes) -> State:
    try:
        state = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        found = re.search(r"GLOBAL ([\w.]+)", str(error))
        reason = f"it names {found[1]}" if found else "it is not a plain pickle of tensors"
        raise WeightsError(
            f"Refused to read the checkpoint {path}: {reason}, and reading such a file can run "
            f"code. attnlab did not write it: remove it."
        ) from None
    except Exception as error:  # on arbitrary bytes the reader fails with any type of error
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise WeightsError(
            f"The checkpoint {path} cannot be read, though its checksum is right: {first}. Remove "
            f"it."
        ) from None
    if not isinstance(state, dict):
        raise WeightsError(
            f"The checkpoint {path} does not hold a training's state, though its checksum is "
            f"right. Remove it."
        )
    return state


def _found(folder: Path) -> list[Path]:
    """Checkpoints, newest first."""
    paths = [path for path in folder.glob("epoch-*.pt") if _NAME.fullmatch(path.name)]
    return sorted(paths, key=lambda path: (_parts(path)[:2], path.stat().st_mtime_ns), reverse=True)


def _parts(path: Path) -> tuple[int, int, str]:
    """Its epochs, its steps of the next one, and its checksum."""
    match = _NAME.fullmatch(path.name)
    assert match is not None
    return int(match[1]), int(match[2] or 0), match[3]


def _checksum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
