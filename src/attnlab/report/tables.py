"""All numbers of a study: on the page, as CSV and as LaTeX."""

from __future__ import annotations

import csv
import io
import math
from typing import Any

from attnlab.report.parts import Cell, Table
from attnlab.report.read import StudyRecord
from attnlab.report.standing import standing_of
from attnlab.study.statistics import Summary
from attnlab.study.table import Row

_TONES = {"gain": "gain", "loss": "loss"}
_LATEX = {
    "\\": r"\textbackslash{}",
    **{c: f"\\{c}" for c in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "Δ": r"$\Delta$",
    "×": r"$\times$",
    "→": r"$\rightarrow$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
}
COLUMNS = (
    "data",
    "backbone",
    "module",
    "seeds",
    "missing_seeds",
    "top1",
    "top1_std",
    "best_epoch_top1",
    "delta",
    "delta_low",
    "delta_high",
    "p",
    "p_holm",
    "verdict",
    "parameters",
    "macs",
    "train_images_per_second",
    "inference_images_per_second",
    "tns",
    "tns_std",
    "fold_error",
    "folded_parameters",
    "folded_top1",
    "paper_top1",
    "paper_std",
)


def numbers(record: StudyRecord) -> list[dict[str, Any]]:
    """One dictionary per row of every group, with the keys `COLUMNS`; None where there is none."""
    return [
        _numbers(group.data, group.backbone, row)
        for group in record.table.groups
        for row in group.rows
    ]


def to_csv(record: StudyRecord) -> str:
    """`numbers` as comma-separated values."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(numbers(record))
    return text.getvalue()


def to_latex(record: StudyRecord) -> str:
    """A table that needs no package: top-1 of every group, and Δ with its interval below it."""
    groups = record.table.groups
    labels = list(dict.fromkeys(row.label for group in groups for row in group.rows))
    lines = [
        f"% {record.table.study}: mean and standard deviation over seeds, last epoch. Below it the",
        "% difference paired by seed with its 95 % Student-t interval; bold after Holm.",
        f"\\begin{{tabular}}{{l{'r' * len(groups)}r}}",
        "\\hline",
        " & ".join(["module", *(latex(record.name_of(g)) for g in groups), "parameters"]) + r" \\",
        "\\hline",
    ]
    for label in labels:
        rows = [next((r for r in g.rows if r.label == label), None) for g in groups]
        parameters = next((f"{r.parameters / 1e6:.3f}M" for r in rows if r and r.parameters), "--")
        lines.append(" & ".join([latex(label), *map(_latex_accuracy, rows), parameters]) + r" \\")
        if any(row and row.comparison for row in rows):
            lines.append(" & ".join(["", *map(_latex_difference, rows), ""]) + r" \\")
    return "\n".join([*lines, "\\hline", "\\end{tabular}", ""])


def latex(text: str) -> str:
    """Text that LaTeX prints as it is."""
    return "".join(_LATEX.get(character, character) for character in text)


def main_table(record: StudyRecord) -> Table:
    """One line per module: Δ on every data set, and the cost."""
    groups = record.table.groups
    first = groups[0]
    columns = ["module", *(record.name_of(group) for group in groups)]
    columns += ["params M", "MACs M", "ms", "TNS", "params M folded", "fold error"]
    lines = []
    for row in first.rows:
        same = [next((r for r in g.rows if r.label == row.label), None) for g in groups]
        lines.append([Cell(row.label), *map(_delta_cell, same), *_cost_cells(row)])
    return Table(columns, lines)


def full_table(record: StudyRecord) -> Table:
    """Everything, one line per module and group."""
    columns = ["module", "data", "top-1 %", "best epoch %", "paper %", "Δ pt", "p", "p (Holm)"]
    columns += ["seeds", "images/s train", "images/s test", "top-1 folded"]
    lines = []
    for group in record.table.groups:
        for row in group.rows:
            comparison = row.comparison
            p = None if comparison is None else comparison.difference.p_value
            lines.append(
                [
                    Cell(row.label),
                    Cell(record.name_of(group)),
                    _summary(row.top1),
                    _summary(row.best_top1, quiet=True),
                    Cell("" if row.paper is None else str(row.paper), tone="quiet"),
                    _delta_cell(row),
                    _number(p, "{:.3g}"),
                    _number(comparison.adjusted_p if comparison else None, "{:.3g}"),
                    Cell(f"{len(row.seeds)} / {len(row.seeds) + len(row.missing)}"),
                    _number(row.train_speed, "{:.0f}"),
                    _number(row.inference_speed, "{:.0f}"),
                    _summary(row.folded_top1),
                ]
            )
    return Table(columns, lines, names=2)


def _numbers(data: str, backbone: str, row: Row) -> dict[str, Any]:
    comparison = row.comparison
    difference = None if comparison is None else comparison.difference
    return {
        "data": data,
        "backbone": backbone,
        "module": row.label,
        "seeds": " ".join(map(str, row.seeds)),
        "missing_seeds": " ".join(map(str, row.missing)),
        "top1": _mean(row.top1),
        "top1_std": None if row.top1 is None else row.top1.std,
        "best_epoch_top1": _mean(row.best_top1),
        "delta": None if difference is None else difference.mean,
        "delta_low": None if difference is None else difference.low,
        "delta_high": None if difference is None else difference.high,
        "p": None if difference is None else difference.p_value,
        "p_holm": None if comparison is None else comparison.adjusted_p,
        "verdict": None if comparison is None else comparison.verdict,
        "parameters": row.parameters,
        "macs": row.macs,
        "train_images_per_second": row.train_speed,
        "inference_images_per_second": row.inference_speed,
        "tns": _mean(row.tns),
        "tns_std": None if row.tns is None else row.tns.std,
        "fold_error": row.fold_error,
        "folded_parameters": row.folded_parameters,
        "folded_top1": _mean(row.folded_top1),
        "paper_top1": None if row.paper is None else row.paper.mean,
        "paper_std": None if row.paper is None else row.paper.std,
    }


def _mean(summary: Summary | None) -> float | None:
    return None if summary is None else summary.mean


def _delta_cell(row: Row | None) -> Cell:
    if row is None or row.top1 is None:
        return Cell("missing", tone="quiet")
    if row.comparison is None:
        return Cell(f"{row.top1.mean:.2f} %", order=0.0 if row.plain else None, tone="quiet")
    difference, standing = row.comparison.difference, standing_of(row.comparison)
    interval = ""
    if difference.low is not None and difference.high is not None:
        interval = f"[{difference.low:+.2f}, {difference.high:+.2f}]"
    text, tone = f"{difference.mean:+.2f}", _TONES.get(standing, "quiet")
    return Cell(text, interval, difference.mean, tone)  # type: ignore[arg-type]


def _cost_cells(row: Row) -> list[Cell]:
    milliseconds = None if row.inference_speed is None else 1000 / row.inference_speed
    error = row.fold_error
    folded = "—" if error is None else f"{error:.1e}{' ✓' if error < 1e-6 else ''}"
    return [
        _number(None if row.parameters is None else row.parameters / 1e6, "{:.3f}"),
        _number(None if row.macs is None else row.macs / 1e6, "{:.1f}"),
        _number(milliseconds, f"{{:.{_decimals(milliseconds)}f}}"),
        _number(_mean(row.tns), f"{{:.{_decimals(_mean(row.tns))}f}}"),
        _number(None if row.folded_parameters is None else row.folded_parameters / 1e6, "{:.3f}"),
        Cell(folded, order=error),
    ]


def _decimals(value: float | None) -> int:
    """So many that three digits are seen: 0.0123, 1.80, 41.0, 1230."""
    if not value:
        return 2
    return max(0, 2 - math.floor(math.log10(abs(value))))


def _number(value: float | None, form: str) -> Cell:
    return Cell("—") if value is None else Cell(form.format(value), order=value)


def _summary(summary: Summary | None, quiet: bool = False) -> Cell:
    if summary is None:
        return Cell("—")
    small = "" if summary.std is None else f"± {summary.std:.2f}"
    return Cell(f"{summary.mean:.2f}", small, summary.mean, "quiet" if quiet else "")


def _latex_accuracy(row: Row | None) -> str:
    return "--" if row is None or row.top1 is None else latex(str(row.top1))


def _latex_difference(row: Row | None) -> str:
    if row is None or row.comparison is None:
        return ""
    difference = row.comparison.difference
    text = f"{difference.mean:+.2f}"
    if row.comparison.verdict in ("better", "worse"):
        text = f"\\textbf{{{text}}}"
    if difference.low is None:
        return text
    return f"{text} [{difference.low:+.2f}, {difference.high:+.2f}]"
