"""Build one variant of the kernels with the machine's compiler into a cache.

The name of the object carries a digest of source and flags, so an outdated object is never loaded.
It is built under a temporary name and renamed, with a lock held: processes that start together
build once, and none sees half a file.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from attnlab._folders import cache_folder
from attnlab._native_variants import Variant

FLAGS = (
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-shared",
    "-fvisibility=default",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
)
OPENMP = ("-fopenmp",)
TIMEOUT = 900.0
"""Seconds that the compiler may take."""


class BuildError(Exception):
    """The kernels could not be built; the message says why."""


def object_name(variant: Variant, source: Path) -> str:
    """File name of `variant` of the kernels in `source`, with a digest of what it is built from."""
    digest = hashlib.sha256()
    for path in sorted(p for p in source.iterdir() if p.suffix in (".cpp", ".h")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    digest.update("\0".join((*FLAGS, *OPENMP, *variant.flags)).encode())
    return f"attnlab-{variant.name}-{digest.hexdigest()[:16]}.so"


def cache_directory() -> Path:
    """`$XDG_CACHE_HOME/attnlab/native`, else `~/.cache/attnlab/native`."""
    return cache_folder() / "native"


def compiler() -> list[str]:
    """The compiler as a command: $CXX, or the first of c++, g++, clang++ on the path."""
    named = shlex.split(os.environ.get("CXX", ""))
    for command in [named] if named else [["c++"], ["g++"], ["clang++"]]:
        if shutil.which(command[0]):
            return command
    wanted = named[0] if named else "c++, g++ or clang++"
    raise BuildError(f"no C++ compiler: {wanted} is not on the path")


def compile_to(target: Path, variant: Variant, source: Path) -> None:
    """Compile `variant` to `target`, atomically; without OpenMP if the compiler has none."""
    command = compiler()
    handle, name = tempfile.mkstemp(dir=target.parent, suffix=".tmp")
    os.close(handle)
    try:
        for openmp in (OPENMP, ()):
            arguments = [*command, *FLAGS, *openmp, *variant.flags, str(source / "kernels.cpp")]
            try:
                result = subprocess.run(
                    [*arguments, "-o", name], capture_output=True, text=True, timeout=TIMEOUT
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                raise BuildError(f"{command[0]} did not run: {error}") from error
            if result.returncode == 0:
                os.chmod(name, 0o755)
                os.replace(name, target)
                return
        lines = result.stderr.strip().splitlines() or ["no message"]
        raise BuildError(f"{command[0]} failed: {lines[0]}")
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock at `path`, in a folder that is known to be ours. A link there is not followed,
    and nothing is emptied: the file may be another one than it seems."""
    import fcntl

    opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


def _check_ours(path: Path) -> None:
    """Refuse code that another user may have put or changed there: it would run as this one."""
    if os.name != "posix":
        return
    found = path.stat()
    if found.st_uid not in (os.geteuid(), 0):
        raise BuildError(f"{path} belongs to another user, so it is not used: remove it")
    if found.st_mode & 0o022:
        raise BuildError(f"{path} may be written by others, so it is not used: chmod go-w it")


def built(variant: Variant, source: Path) -> Path:
    """The object of `source` for `variant` in the cache, built now if it is not there."""
    target = cache_directory() / object_name(variant, source)
    if target.exists():
        _check_ours(target.parent)
        _check_ours(target)
        return target
    if os.name != "posix":
        raise BuildError(f"native kernels are not built on {os.name}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _check_ours(target.parent)  # before anything in it is opened
        with _locked(target.with_suffix(".lock")):
            if not target.exists():
                compile_to(target, variant, source)
            _check_ours(target)
    except OSError as error:
        raise BuildError(f"cannot write to {target.parent}: {error}") from error
    return target
