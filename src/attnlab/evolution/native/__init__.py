"""The native kernels: found or built on first use, never on import.

`ATTNLAB_NATIVE` chooses: `auto` (the default) loads an object that came with the package, else one
from the cache, else builds it with the machine's compiler; `prebuilt` never builds; `off` uses pure
torch. Whatever fails, pure torch remains and `native_status()` says why.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from attnlab._errors import unknown_name
from attnlab.evolution.native import abi, variants
from attnlab.evolution.native.build import BuildError, built, object_name

MODES = ("auto", "prebuilt", "off")
PREBUILT = Path(__file__).parent / "lib"


@dataclass(frozen=True)
class NativeStatus:
    """Which path the operators take, and why."""

    available: bool
    variant: str
    path: Path | None
    reason: str

    def __str__(self) -> str:
        if self.available:
            return f"native kernels ({self.variant}): {self.reason}, {self.path}"
        return f"pure torch: {self.reason}"


class _State:
    lock = threading.Lock()
    status: NativeStatus | None = None
    library: ctypes.CDLL | None = None
    enabled = True


def library() -> ctypes.CDLL | None:
    """The loaded kernels, or None; finds or builds them at the first call."""
    if _State.status is None:
        with _State.lock:
            if _State.status is None:
                _State.library, _State.status = _find()
    return _State.library if _State.enabled else None


def native_status() -> NativeStatus:
    """Whether the native kernels run, from which file, or why not."""
    library()
    assert _State.status is not None
    if _State.status.available and not _State.enabled:
        return NativeStatus(False, _State.status.variant, None, "switched off by use_native(False)")
    return _State.status


@contextlib.contextmanager
def use_native(enabled: bool) -> Iterator[None]:
    """Switch the native kernels off (or on again) inside a block, for comparisons."""
    before = _State.enabled
    _State.enabled = enabled
    try:
        yield
    finally:
        _State.enabled = before


def _find() -> tuple[ctypes.CDLL | None, NativeStatus]:
    mode = os.environ.get("ATTNLAB_NATIVE", "auto")
    if mode not in MODES:
        raise unknown_name("ATTNLAB_NATIVE", mode, MODES)
    variant = variants.host()
    if mode == "off":
        return None, NativeStatus(False, variant.name, None, "ATTNLAB_NATIVE=off")
    prebuilt = PREBUILT / object_name(variant)
    try:
        if prebuilt.exists():
            path, reason = prebuilt, "came with the package"
        elif mode == "prebuilt":
            reason = "ATTNLAB_NATIVE=prebuilt, and the package has no object for this machine"
            return None, NativeStatus(False, variant.name, None, reason)
        else:
            path, reason = built(variant), "built on this machine"
        found = ctypes.CDLL(str(path))
        abi.declare(found)
    except (BuildError, OSError, AttributeError) as error:
        return None, NativeStatus(False, variant.name, None, str(error))
    return found, NativeStatus(True, variant.name, path, reason)
