"""One table for every place that shows one: the terminal, a page, CSV, Markdown and LaTeX."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "−": "$-$",
    "×": r"$\times$",
    "δ": r"$\delta$",
    "Δ": r"$\Delta$",
}


@dataclass(frozen=True)
class Cell:
    """One value of a table, what to sort it by, and how it is set off."""

    text: str
    small: str = ""
    order: float | None = None
    tone: Literal["", "gain", "loss", "quiet"] = ""

    def __str__(self) -> str:
        return f"{self.text} {self.small}".strip()


def number_cell(value: float | None, form: str) -> Cell:
    """A number that is sorted by its value; a dash where there is none."""
    if value is None or math.isnan(value):
        return Cell("—")
    return Cell(form.format(value), order=value)


@dataclass(frozen=True)
class Table:
    """Rows of cells under the heads of columns. On a page JavaScript, if there is any, sorts and
    filters it."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    names: int = 1
    """How many columns, from the left, hold names and no numbers."""
    kind: str = field(default="table", init=False)

    def texts(self) -> list[list[str]]:
        """The cells as text, row by row."""
        return [[str(cell) for cell in row] for row in self.rows]

    def to_csv(self) -> str:
        """Comma-separated values, with a line of headings."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([list(self.columns), *self.texts()])
        return text.getvalue()

    def to_markdown(self) -> str:
        """A table of Markdown; numbers are aligned to the right."""
        rules = ["---" if place < self.names else "---:" for place in range(len(self.columns))]
        escaped = ([cell.replace("|", "\\|") for cell in row] for row in self.texts())
        lines = [list(self.columns), rules, *escaped]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)

    def to_latex(self) -> str:
        """A tabular of LaTeX, with the rules of the package booktabs."""
        sides = "l" * self.names + "r" * (len(self.columns) - self.names)
        body = [_latex_row(row) for row in self.texts()]
        lines = [rf"\begin{{tabular}}{{{sides}}}", r"\toprule", _latex_row(self.columns)]
        return "\n".join([*lines, r"\midrule", *body, r"\bottomrule", r"\end{tabular}", ""])


def _latex_row(cells: Iterable[str]) -> str:
    escaped = ("".join(_LATEX.get(letter, letter) for letter in cell) for cell in cells)
    return " & ".join(escaped) + r" \\"
