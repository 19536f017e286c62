"""Columns, each said once for all tables that have it: on the terminal, on a page, in CSV."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from attnlab.page.tables import Cell, Table

L = TypeVar("L")
Value = str | float | None


@dataclass(frozen=True)
class Column(Generic[L]):
    """One quantity of the lines of a table. Where the terminal, which has less room, shows it
    in another way, `short` and `text` say how."""

    heading: str
    cell: Callable[[L], Cell]
    short: str = ""
    text: Callable[[L], str] | None = None
    values: Mapping[str, Callable[[L], Value]] = field(default_factory=dict)
    """The figures behind it with all their digits, by the headings that they have in CSV."""


def shown_table(
    columns: Sequence[Column[L]], lines: Sequence[L], *, names: int = 1, caption: str = ""
) -> Table:
    """The columns as a page shows them."""
    rows = [[column.cell(line) for column in columns] for line in lines]
    return Table([column.heading for column in columns], rows, caption, names)


def terminal_table(columns: Sequence[Column[L]], lines: Sequence[L], caption: str = "") -> Table:
    """The columns as the terminal and Markdown show them."""
    rows = [[_short_cell(column, line) for column in columns] for line in lines]
    return Table([column.short or column.heading for column in columns], rows, caption)


def value_table(columns: Sequence[Column[L]], lines: Sequence[L]) -> Table:
    """Every figure behind the columns with all its digits, for CSV."""
    values = {name: read for column in columns for name, read in column.values.items()}
    rows = [[_value_cell(read(line)) for read in values.values()] for line in lines]
    return Table(list(values), rows)


def _short_cell(column: Column[L], line: L) -> Cell:
    return column.cell(line) if column.text is None else Cell(column.text(line))


def _value_cell(value: Value) -> Cell:
    # repr of a float has as many digits as it takes to read the same float again.
    return Cell("" if value is None else str(value))
