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
from attnlab.stored.damage import DamagedFileError, read_object


@contextmanager
def claim(directory: Path) -> Iterator[bool]:
    """Yield whether this process now works on the run in `directory`; if so, until the end."""
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


def owner(directory: Path) -> str:
    """`"host, process 123"`: who worked on the run last."""
    try:
        found = read_object(directory / "owner.json", "")
        return f"{found['host']}, process {found['pid']}"
    except (DamagedFileError, KeyError):
        return "an unknown process"
