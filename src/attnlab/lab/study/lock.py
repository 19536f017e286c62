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
from pathlib import Path
from typing import Protocol

from filelock import FileLock, Timeout

from attnlab._errors import InputError
from attnlab._files import write_whole
from attnlab.lab.study.lease import claims_of, leased, process_lives
from attnlab.results.damage import DamagedFileError, read_object
from attnlab.results.mirror import mirror_of, results_folder


class Claim(Protocol):
    """A run that this process works on."""

    def publish(self) -> None:
        """Have it count where others look: it is finished and whole."""


class _OfThisMachine:
    """In the folder itself: with its manifest it counts."""

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
        me = {"host": socket.gethostname(), "pid": os.getpid(), "since": time.time()}
        if starter is not None:
            me["starter"] = starter
        write_whole(directory / "owner.json", json.dumps(me))
        yield True
    finally:
        lock.release()


def is_claimed(directory: Path) -> bool:
    """Whether some process works on the run in `directory`, on this machine or another."""
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
    """Whether a process of this machine works on the run whose starter is gone. It ends soon."""
    try:
        found = read_object(directory / "owner.json", "")
        starter = found.get("starter")
        if found["host"] != socket.gethostname() or not isinstance(starter, int):
            return False
    except (DamagedFileError, KeyError):
        return False
    return not process_lives(starter) and _is_claimed_here(directory)


def owner(directory: Path) -> str:
    """`"host, process 123"`: who worked on the run last."""
    mirror = mirror_of(directory.parent)
    holder = None if mirror is None else claims_of(mirror).holder(directory.name)
    if holder is not None:
        return str(holder)
    try:
        found = read_object(directory / "owner.json", "")
        return f"{found['host']}, process {found['pid']}"
    except (DamagedFileError, KeyError):
        return "an unknown process"
