"""One process per run: a lock that the operating system drops when its holder dies.

The file stays; what counts is who holds it. So nothing has to be cleaned up after a kill, and a
lock is never taken from a process that lives. Children of the holder that outlive it (workers that
load data) keep it until they notice, a few seconds later.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from filelock import FileLock, Timeout
from pydantic import TypeAdapter, ValidationError

from attnlab._errors import InputError
from attnlab._files import write_whole
from attnlab.lab.study.lease import claims_of, leased, process_lives
from attnlab.results.damage import DamagedFileError, read_object
from attnlab.results.mirror import mirror_of, results_folder

_OWNER = "owner.json"


@dataclass(frozen=True)
class _Owner:
    """The process that works on a run, or did last."""

    host: str
    pid: int
    since: float
    starter: int | None = None
    """The process with which it ends, if there is one."""


class Claim(Protocol):
    """A run that this process works on."""

    def publish(self) -> None:
        """Have it count where others look: it is finished and whole."""


class _OfThisMachine:
    """A claim in the folder itself: the run counts there as soon as its manifest is written."""

    def publish(self) -> None: ...


@contextmanager
def claim(directory: Path, starter: int | None = None) -> Iterator[Claim | None]:
    """Yield the claim of this process to the run in `directory`, which lasts until the end; None
    if another process works on it. `starter` is the process with which this one ends. Where the
    folder mirrors an address, the run is claimed there as well."""
    with _locked(directory, starter) as ours:
        mirror = mirror_of(directory.parent) if ours else None
        if mirror is None:
            yield _OfThisMachine() if ours else None
            return
        with leased(mirror, directory) as lease:
            yield lease


@contextmanager
def working_at(address: str) -> Iterator[Path]:
    """Work on the run at an address in a folder of this machine, unless another process does."""
    above, _, name = address.rstrip("/").rpartition("/")
    directory = results_folder(above) / name
    with claim(directory) as claimed:
        if claimed is None:
            raise InputError(f"{address} is worked on by {owner(directory)}.")
        yield directory
        claimed.publish()


@contextmanager
def _locked(directory: Path, starter: int | None) -> Iterator[bool]:
    directory.mkdir(parents=True, exist_ok=True)
    lock = FileLock(directory / ".lock")
    try:
        # Whoever looks whether a run is worked on holds its lock for a moment.
        lock.acquire(timeout=0.5, poll_interval=0.05)
    except Timeout:
        yield False
        return
    try:
        me = _Owner(socket.gethostname(), os.getpid(), time.time(), starter)
        write_whole(directory / _OWNER, json.dumps(asdict(me)))
        yield True
    finally:
        lock.release()


def is_claimed(directory: Path) -> bool:
    """Return whether some process works on the run in `directory`, on this machine or another."""
    if _is_claimed_here(directory):
        return True
    mirror = mirror_of(directory.parent)
    return mirror is not None and claims_of(mirror).holder(directory.name) is not None


def _is_claimed_here(directory: Path) -> bool:
    if not (directory / ".lock").exists():
        return False
    lock = FileLock(directory / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    except PermissionError:  # a folder that may only be read
        return _is_locked(directory / ".lock")
    lock.release()
    return False


def _is_locked(file: Path) -> bool:
    """Whether someone holds a lock on a file that may not be written."""
    import fcntl

    try:
        with file.open("rb") as opened:
            fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # may not even be read
        return False
    return False


def is_left_behind(directory: Path) -> bool:
    """Return whether a process of this machine works on the run whose starter is gone. It ends
    soon."""
    found = _owner(directory)
    if found is None or found.starter is None or found.host != socket.gethostname():
        return False
    return not process_lives(found.starter) and _is_claimed_here(directory)


def owner(directory: Path) -> str:
    """`"host, process 123"`: who worked on the run last."""
    mirror = mirror_of(directory.parent)
    holder = None if mirror is None else claims_of(mirror).holder(directory.name)
    if holder is not None:
        return str(holder)
    found = _owner(directory)
    return "an unknown process" if found is None else f"{found.host}, process {found.pid}"


def _owner(directory: Path) -> _Owner | None:
    """Who worked on the run last; None if the file does not say so."""
    try:
        return TypeAdapter(_Owner).validate_python(read_object(directory / _OWNER, ""))
    except (DamagedFileError, ValidationError):
        return None
