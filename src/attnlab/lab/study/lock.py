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

from filelock import FileLock, Timeout

from attnlab._files import write_whole
from attnlab.results.damage import DamagedFileError, read_object


@contextmanager
def claim(directory: Path, starter: int | None = None) -> Iterator[bool]:
    """Yield whether this process now works on the run in `directory`; if so, until the end.
    `starter` is the process with which it ends."""
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
    """Whether some process works on the run in `directory`."""
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
    return not _lives(starter) and is_claimed(directory)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is another user's
        return True
    return True


def owner(directory: Path) -> str:
    """`"host, process 123"`: who worked on the run last."""
    try:
        found = read_object(directory / "owner.json", "")
        return f"{found['host']}, process {found['pid']}"
    except (DamagedFileError, KeyError):
        return "an unknown process"
