"""rich's console, which leaves a closed pipe to the commands: its own would end them with code 1
and without a word."""

from __future__ import annotations

import errno
import os

from rich.console import Console


class PlainConsole(Console):
    """Text as it is given."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
