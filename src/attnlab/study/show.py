"""The table of a study as text: cells for the terminal, and Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from attnlab.study.table import Group, Row, StudyTable

Cells = tuple[list[str], list[list[str]]]
"""Headings, and rows under them; the first column is text, the others are numbers."""

NOTES = (
    "top-1 is the last epoch of the recipe, mean ± std over seeds; the best epoch* was chosen by "
    "looking at the test images, so it is optimistic and no result",
    "Δ is the paired difference by seed to the plain backbone, with a Student-t interval; p by "
    "Holm over the modules of the table; nothing is called better when the interval contains zero",
    "images/s were timed in each run alone: `attnlab try` measures a ratio in turns",
)


def accuracy_cells(group: Group, level: float) -> Cells:
    """What the modules gain, beside what the paper prints."""
    heads = ["module", "seeds", "top-1 %", "best epoch*", f"Δ [{level:.0%} interval]", "p (Holm)"]
    heads.append("verdict")
    printed = any(row.paper for row in group.rows)
    if printed:
        heads += ["paper top-1 %", "paper Δ"]
    plain = next((row for row in group.rows if row.plain), None)
    rows = []
    for row in group.rows:
        cells = [row.label, _seeds(row), _text(row.top1), _text(row.best_top1), *_difference(row)]
        if printed:
            cells += [_text(row.paper), _paper_gain(row, plain)]
        rows.append(cells)
    return heads, rows


def cost_cells(group: Group) -> Cells:
    """What they cost, what they do to the trajectory, and what is left when they are folded."""
    heads = ["module", "parameters", "MACs", "train images/s", "test images/s", "TNS"]
    heads += ["folded parameters", "fold error", "folded top-1 %"]
    rows = [
        [
            row.label,
            "" if row.parameters is None else f"{row.parameters:,}",
            "" if row.macs is None else f"{row.macs:,}",
            "" if row.train_speed is None else f"{row.train_speed:,.0f}",
            "" if row.inference_speed is None else f"{row.inference_speed:,.0f}",
            "" if row.tns is None else row.tns.text(4),
            "" if row.folded_parameters is None else f"{row.folded_parameters:,}",
            "" if row.fold_error is None else f"{row.fold_error:.0e}",
            _text(row.folded_top1),
        ]
        for row in group.rows
    ]
    return heads, rows


def markdown(table: StudyTable) -> str:
    """The whole table as Markdown."""
    parts = [f"# {table.title}"]
    for group in table.groups:
        parts.append(f"## {group.name}")
        parts += [_markdown(*accuracy_cells(group, table.level)), _markdown(*cost_cells(group))]
    parts.append("\n".join(f"* {line}" for line in footnotes(table)))
    return "\n\n".join(parts) + "\n"


def footnotes(table: StudyTable) -> list[str]:
    """What must be known to read the table."""
    lines = [*table.notes, *NOTES, *_missing_intervals(table)]
    if table.paper_source:
        lines.append(f"paper: {table.paper_source}. {table.paper_note}".strip())
    return lines


def _missing_intervals(table: StudyTable) -> list[str]:
    """Why rows have no interval, each reason once."""
    compared = [row.comparison for group in table.groups for row in group.rows]
    found = [comparison.difference for comparison in compared if comparison is not None]
    return [f"[–]: {note}" for note in dict.fromkeys(one.note for one in found) if note]


def _seeds(row: Row) -> str:
    planned = len(row.seeds) + len(row.missing)
    return f"{len(row.seeds)}" if not row.missing else f"{len(row.seeds)} of {planned}"


def _difference(row: Row) -> list[str]:
    if row.comparison is None:
        return ["", "", ""]
    found = row.comparison.difference
    if found.low is None or found.high is None:
        return [f"{found.mean:+.2f} [–]", "", row.comparison.verdict]
    interval = f"{found.mean:+.2f} [{found.low:+.2f}, {found.high:+.2f}]"
    return [interval, f"{row.comparison.adjusted_p:.3f}", row.comparison.verdict]


def _paper_gain(row: Row, plain: Row | None) -> str:
    if row.plain or row.paper is None or plain is None or plain.paper is None:
        return ""
    return f"{row.paper.mean - plain.paper.mean:+.2f}"


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
