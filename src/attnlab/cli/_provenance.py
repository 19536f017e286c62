"""What a command knows of where its numbers come from."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

_COMMAND: ContextVar[str] = ContextVar("command", default="")


@contextmanager
def as_command(arguments: Sequence[str]) -> Iterator[None]:
    """What is made inside was made by `attnlab ARGUMENTS`."""
    token = _COMMAND.set(shlex.join(["attnlab", *arguments]))
    try:
        yield
    finally:
        _COMMAND.reset(token)


def command_line() -> str:
    """The command that is running; empty where none is."""
    return _COMMAND.get()
