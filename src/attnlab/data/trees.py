"""Folders of files, on this machine or at an address of fsspec (`s3://bucket/folder`), looked
through without opening a file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from attnlab._address import file_system, is_address, local_path
from attnlab._errors import InputError, OptionError

Walked = tuple[Path, list[str], list[str]]
"""A folder, and the names of the folders and files in it; folders that are taken out of the list
are not walked through."""


class Tree(Protocol):
    """A folder and all that is below it."""

    root: Path
    """Where its paths begin; empty if it is at an address."""
    shown: str
    """How messages call it."""
    on_disk: bool
    """Whether it is on this machine."""

    def walk(self, folder: Path) -> Iterator[Walked]:
        """What is below a folder, from it downwards; nothing if it is not there."""

    def size(self, file: Path) -> int:
        """How many bytes a file has."""

    def place(self, file: Path) -> str:
        """Where a file is read."""


class _OnDisk:
    on_disk = True

    def __init__(self, root: str) -> None:
        self.root, self.shown = Path(root), str(root)

    def walk(self, folder: Path) -> Iterator[Walked]:
        for place, folders, files in os.walk(folder):
            yield Path(place), folders, files

    def size(self, file: Path) -> int:
        return file.stat().st_size

    def place(self, file: Path) -> str:
        return str(file)


class _AtAddress:
    """Listed as a whole, once: an object store has names and no folders."""

    on_disk = False

    def __init__(self, address: str) -> None:
        self.root, self.shown = Path(), address
        system, path = file_system(address)
        try:
            system.invalidate_cache()
            found = system.find(path, detail=True)
        except OSError as error:
            raise InputError(f"{address!r} cannot be listed ({error}).") from error
        if not found:
            raise InputError(f"There is no folder {address!r}, or nothing in it.")
        self._system, self._path = system, path.rstrip("/")
        self._folders: dict[Path, tuple[set[str], list[str]]] = {Path(): (set(), [])}
        self._sizes: dict[Path, int] = {}
        for name, entry in found.items():
            file = Path(name[len(self._path) :].lstrip("/"))
            self._sizes[file] = entry["size"]
            self._inside(file.parent)[1].append(file.name)

    def _inside(self, folder: Path) -> tuple[set[str], list[str]]:
        if folder not in self._folders:
            self._folders[folder] = (set(), [])
            self._inside(folder.parent)[0].add(folder.name)
        return self._folders[folder]

    def walk(self, folder: Path) -> Iterator[Walked]:
        if folder in self._folders:
            inside, files = self._folders[folder]
            names = sorted(inside)
            yield folder, names, list(files)
            for name in names:
                yield from self.walk(folder / name)

    def size(self, file: Path) -> int:
        return self._sizes[file]

    def place(self, file: Path) -> str:
        return str(self._system.unstrip_protocol(f"{self._path}/{file.as_posix()}"))


def tree_at(root: str | None) -> Tree:
    """The folder that `root` names; an error if there is none."""
    if root is None:
        raise OptionError("Data 'folder' needs its folder, root = 'path/of/the/data'.")
    if is_address(root):
        return _AtAddress(root)
    if not local_path(root).is_dir():
        raise InputError(f"There is no folder {root!r}.")
    return _OnDisk(str(local_path(root)))
