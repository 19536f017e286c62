"""Machines without a shared disk, in one process: each has a cache of its own."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from attnlab.lab.study import lease
from attnlab.results import mirror

ADDRESS = "memory://bucket/runs"


class Machines:
    """`on("a")` makes this process the machine a."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self._patch = folder, patch

    def on(self, name: str) -> None:
        self._patch.setenv("XDG_CACHE_HOME", str(self.folder / name))
        mirror.mirror_at.cache_clear()
        lease._CLAIMS.clear()

    def lose(self, name: str) -> None:
        """Its disk is gone."""
        shutil.rmtree(self.folder / name, ignore_errors=True)


class PlainStore(MemoryFileSystem):
    """A store without conditional put: whoever comes last wrote the object."""

    protocol = "plain"
    store: dict[str, Any] = {}
    pseudo_dirs = [""]

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return super()._strip_protocol(path.replace("plain://", "memory://"))

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        del mode
        super().pipe_file(path, value, mode="overwrite")


fsspec.register_implementation("plain", PlainStore, clobber=True)


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machines]:
    """Two of them reach one store, which is empty; this process is the machine a."""
    for system in (MemoryFileSystem, PlainStore):
        system.store.clear()
        system.pseudo_dirs[:] = [""]
    found = Machines(tmp_path / "machines", monkeypatch)
    found.on("a")
    yield found
    mirror.mirror_at.cache_clear()
    lease._CLAIMS.clear()


def objects() -> list[str]:
    """The names of all objects at ADDRESS."""
    found = MemoryFileSystem().find("/bucket/runs")
    return sorted(name.removeprefix("/bucket/runs/") for name in found)


def losing(system: type, lost: Callable[[str], bool], times: int) -> Callable[..., None]:
    """`pipe_file` of a store that confirms a write and loses it, so many times."""
    write, left = system.pipe_file, [times]

    def pipe_file(self: Any, path: str, value: bytes, **options: Any) -> None:
        if lost(path) and left[0]:
            left[0] -= 1
            return
        write(self, path, value, **options)

    return pipe_file
