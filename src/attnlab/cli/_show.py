"""What the commands share when they print."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.console import Console

from attnlab._extras import check_extra

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from attnlab.page.tables import Table as PageTable


Justify = Literal["left", "right"]
_WIDTH_OF_A_FILE = 140


def console() -> Console:
    """Standard output; where that is not a terminal, wide enough that no row of a table breaks."""
    from attnlab.cli._show import PlainConsole

    width = None if sys.stdout.isatty() else _WIDTH_OF_A_FILE
    return PlainConsole(width=width, highlight=False, markup=False, emoji=False)


def table(
    columns: Sequence[tuple[str, Justify]], rows: Sequence[Sequence[str]], title: str | None = None
) -> Table:
    """A table of `rows` under `columns`, each a heading and a side."""
    from rich import box
    from rich.table import Table

    shown = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for heading, justify in columns:
        shown.add_column(heading, justify=justify)
    for row in rows:
        shown.add_row(*row)
    return shown


def numbers_table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None
) -> Table:
    """A table whose first column is text and whose others are numbers."""
    text, *numbers = heads
    columns: list[tuple[str, Justify]] = [(text, "left")]
    return table(columns + [(number, "right") for number in numbers], rows, title)


def rich_table(shown: PageTable) -> Table:
    """A table of a result, for the terminal."""
    sides: list[Justify] = [
        "left" if n < shown.names else "right" for n in range(len(shown.columns))
    ]
    columns = list(zip(shown.columns, sides, strict=True))
    return table(columns, shown.texts(), shown.caption or None)


def check_drawing(out: Path | None) -> None:
    """Refuse to measure for a folder of figures where they cannot be drawn."""
    if out is not None:
        check_extra("report", "vl_convert")


def print_python(*lines: str) -> None:
    """The lines of Python that do the same as the command."""
    print("In Python:")
    for line in lines:
        print(f"  {line}")


class PlainConsole(Console):
    """Text as it is given."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
