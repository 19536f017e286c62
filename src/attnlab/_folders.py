"""What packages hand on without importing it: folders and names, found when they are first used."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType


def reached(
    room: str, *folders: str
) -> tuple[Callable[[str], ModuleType], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a room, so that `import attnlab` is enough to write
    `attnlab.lab.study.load_study` and nothing is imported before it is needed."""

    def attribute(name: str) -> ModuleType:
        if name in folders:
            return import_module(f"{room}.{name}")
        raise AttributeError(f"{room} has no {name!r}. It has: {', '.join(folders)}.")

    def names() -> list[str]:
        return sorted(folders)

    return attribute, names


def handed_on(
    package: str, **files: tuple[str, ...]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of an instrument, whose names are in these files.

    Its page needs no network: importing the package for it must not import what measures.
    """
    homes = {name: file for file, names in files.items() for name in names}

    def attribute(name: str) -> object:
        if name in homes:
            return getattr(import_module(f"{package}.{homes[name]}"), name)
        raise AttributeError(f"{package} has no {name!r}. It has: {', '.join(names())}.")

    def names() -> list[str]:
        return sorted(homes)

    return attribute, names


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/attnlab`, else `~/.cache/attnlab`; it need not be there yet."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "attnlab"
