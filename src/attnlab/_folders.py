"""Rooms that consist of folders: each folder is imported when it is first reached."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
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
