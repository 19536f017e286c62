"""One folder of C++ and the object made of it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from attnlab import _native_variants as variants
from attnlab._errors import unknown_name
from attnlab._native_build import BuildError, built, object_name

MODES = ("auto", "prebuilt", "off")


@dataclass(frozen=True)
class NativeStatus:
    """The path that calls take, native or torch, and why."""

    available: bool
    variant: str
    path: Path | None
    reason: str

    def __str__(self) -> str:
        if self.available:
            return f"native kernels ({self.variant}): {self.reason}, {self.path}"
        return f"pure torch: {self.reason}"


class Kernels:
    """The kernels of the folder `source`; objects that came with the package are in `prebuilt`.

    `declare` gives the entry points their argument types; AttributeError when one is missing.
    `variant` says for which instruction set.
    """

    def __init__(
        self,
        source: Path,
        prebuilt: Path,
        declare: Callable[[ctypes.CDLL], None],
        variant: Callable[[], variants.Variant] = variants.this_machine,
    ) -> None:
        self.source, self.prebuilt, self.declare, self.variant = source, prebuilt, declare, variant
        self._lock = threading.Lock()
        self._found: tuple[ctypes.CDLL | None, NativeStatus] | None = None
        self._enabled = True

    def library(self) -> ctypes.CDLL | None:
        """The loaded kernels, or None; finds or builds them at the first call."""
        return self._once()[0] if self._enabled else None

    def status(self) -> NativeStatus:
        """Say whether the kernels run, from which file, or why they do not."""
        found = self._once()[1]
        if found.available and not self._enabled:
            return NativeStatus(False, found.variant, None, "switched off by use_native(False)")
        return found

    @contextlib.contextmanager
    def use(self, enabled: bool) -> Iterator[None]:
        """Switch the kernels off (or on again) inside a block, for comparisons."""
        before, self._enabled = self._enabled, enabled
        try:
            yield
        finally:
            self._enabled = before

    def find(self) -> tuple[ctypes.CDLL | None, NativeStatus]:
        """Look for the kernels anew."""
        mode = os.environ.get("ATTNLAB_NATIVE", "auto")
        if mode not in MODES:
            raise unknown_name("ATTNLAB_NATIVE", mode, MODES)
        variant = self.variant()
        if mode == "off":
            return None, NativeStatus(False, variant.name, None, "ATTNLAB_NATIVE=off")
        prebuilt = self.prebuilt / object_name(variant, self.source)
        try:
            if prebuilt.exists():
                path, reason = prebuilt, "came with the package"
            elif mode == "prebuilt":
                reason = "ATTNLAB_NATIVE=prebuilt, and the package has no object for this machine"
                return None, NativeStatus(False, variant.name, None, reason)
            else:
                path, reason = built(variant, self.source), "built on this machine"
            found = ctypes.CDLL(str(path))
            self.declare(found)
        except (BuildError, OSError, AttributeError) as error:
            return None, NativeStatus(False, variant.name, None, str(error))
        return found, NativeStatus(True, variant.name, path, reason)

    def _once(self) -> tuple[ctypes.CDLL | None, NativeStatus]:
        if self._found is None:
            with self._lock:
                if self._found is None:
                    self._found = self.find()
        return self._found
