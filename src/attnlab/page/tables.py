"""One table for every place that shows one: the terminal, a page, CSV, Markdown and LaTeX."""

from __future__ import annotations

import csv
import io
import math
import re
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
    "→": r"$\rightarrow$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "²": r"$^2$",
    "|": r"$|$",
    "—": "--",
}
_HYPHEN = re.compile(r"(?<![\w.:/-])-(?=\d)")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


CellTone = Literal["", "gain", "loss", "quiet"]


@dataclass(frozen=True)
class Cell:
    """One value of a table, what to sort it by, and how it is set off."""

    text: str
    small: str = ""
    order: float | None = None
    tone: CellTone = ""

    def __str__(self) -> str:
        return f"{self.text} {self.small}".strip()


def number_cell(value: float | None, form: str) -> Cell:
    """A number that is sorted by its value; a dash if there is none."""
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
        lines = [list(self.columns), *self.texts()]
        csv.writer(text, lineterminator="\n").writerows([map(_spreadsheet, line) for line in lines])
        return text.getvalue()

    def to_markdown(self) -> str:
        """A table of Markdown; numbers are aligned to the right."""
        rules = ["---" if place < self.names else "---:" for place in range(len(self.columns))]
        lines = [self.columns, rules, *self.texts()]
        escaped = ([cell.replace("|", "\\|") for cell in line] for line in lines)
        return "".join(f"| {' | '.join(line)} |\n" for line in escaped)

    def to_latex(self) -> str:
        """A tabular of LaTeX with the rules of the package booktabs, and the caption as a comment
        above it. What is set off as a gain or a loss is bold."""
        sides = "l" * self.names + "r" * (len(self.columns) - self.names)
        lines = [
            *(f"% {line}" for line in self.caption.splitlines()),
            r"% needs \usepackage{booktabs}",
            rf"\begin{{tabular}}{{{sides}}}",
            r"\toprule",
            _latex_row(latex(column) for column in self.columns),
            r"\midrule",
            *(_latex_row(_latex_cell(cell) for cell in row) for row in self.rows),
            r"\bottomrule",
            r"\end{tabular}",
        ]
        return "".join(f"{line}\n" for line in lines)


def minus(text: str) -> str:
    """`-0.12` as it is printed in books: `−0.12`."""
    return _HYPHEN.sub("−", text)


def latex(text: str) -> str:
    """Text that LaTeX prints as it is."""
    return "".join(_LATEX.get(letter, letter) for letter in minus(text))


def _latex_cell(cell: Cell) -> str:
    bold = cell.tone in ("gain", "loss")
    text = rf"\textbf{{{latex(cell.text)}}}" if bold else latex(cell.text)
    return f"{text} {latex(cell.small)}".strip()


def _latex_row(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def _spreadsheet(text: str) -> str:
    """A text that a spreadsheet would take for a formula, marked as text; numbers stay."""
    if not text.startswith(_FORMULA):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text
