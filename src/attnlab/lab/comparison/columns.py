"""The columns of a comparison of logs, once, and the tables made of them."""

from __future__ import annotations

from collections.abc import Callable

from attnlab.lab.comparison.result import ComparedRun, ComparisonResult
from attnlab.page.columns import Column, shown_table, terminal_table, value_table
from attnlab.page.tables import Cell, Table, number_cell
from attnlab.results.metric import Metric
from attnlab.results.study_cells import compared_tone, summary_cell
from attnlab.results.table import Comparison, StudyRow

_TERMINAL = ("row", "runs", "result", "best", "delta", "anytime", "p_holm", "verdict", "needed")


def page_table(comparison: ComparisonResult) -> Table:
    """A line per row, as the page shows it."""
    return shown_table(list(_columns(comparison).values()), comparison.judged.groups[0].rows)


def text_table(comparison: ComparisonResult) -> Table:
    """A line per row, for the terminal and Markdown."""
    columns, judged = _columns(comparison), comparison.judged
    chosen = [columns[name] for name in _TERMINAL]
    return terminal_table(chosen, judged.groups[0].rows, judged.title)


def run_table(comparison: ComparisonResult) -> Table:
    """A line per log, as the page shows it."""
    return shown_table(_run_columns(comparison), comparison.runs)


def run_values(comparison: ComparisonResult) -> Table:
    """A line per log with all digits, for CSV."""
    return value_table(_run_columns(comparison), comparison.runs)


def _columns(comparison: ComparisonResult) -> dict[str, Column[StudyRow]]:
    metric = comparison.judged.metric
    form = f"{{:.{metric.digits}f}}"

    def best(row: StudyRow) -> Cell:
        return number_cell(None if row.best is None else row.best.mean, form)

    return {
        "row": Column(comparison.by, lambda row: Cell(row.label)),
        "runs": Column("runs", lambda row: number_cell(len(row.seeds), "{}")),
        "result": Column(metric.title, lambda row: summary_cell(row.values[metric.name], metric)),
        "best": Column(
            "best",
            best,
            "best*",
            lambda row: "" if row.best is None else row.best.text(metric.digits),
        ),
        **_difference_columns(metric),
        "needed": Column(
            "seeds for 80 %",
            lambda row: Cell(_needed(comparison, row) or "—", order=_order(comparison, row)),
            "seeds**",
            lambda row: _needed(comparison, row),
        ),
    }


def _difference_columns(metric: Metric) -> dict[str, Column[StudyRow]]:
    def interval(compared: Comparison, sequential: bool) -> str:
        low, high, _ = compared.difference.figures(sequential)
        return "" if low is None or high is None else metric.interval_text(low, high)

    def delta(compared: Comparison) -> Cell:
        mean = compared.difference.mean
        return Cell(metric.signed(mean), "", mean, compared_tone(compared))

    def delta_text(compared: Comparison) -> str:
        return f"{metric.signed(compared.difference.mean)} {interval(compared, False) or '[–]'}"

    return {
        "delta": Column("Δ", _if_compared(delta), "Δ [Student-t]", _text(delta_text)),
        "student": Column(
            "Student-t", _if_compared(lambda found: Cell(interval(found, False) or "—"))
        ),
        "anytime": Column(
            "anytime",
            _if_compared(lambda found: Cell(interval(found, True) or "—")),
            "[anytime]",
            _text(lambda found: interval(found, True) or "[–]"),
        ),
        "p_holm": Column(
            "p (Holm)",
            _if_compared(lambda found: number_cell(found.adjusted_p, "{:.3g}")),
            text=_text(lambda found: "" if found.adjusted_p is None else f"{found.adjusted_p:.3f}"),
        ),
        "verdict": Column(
            "verdict",
            _if_compared(lambda found: Cell(found.verdict, found.note)),
            text=_text(lambda found: found.verdict),
        ),
    }


def _if_compared(cell: Callable[[Comparison], Cell]) -> Callable[[StudyRow], Cell]:
    return lambda row: Cell("—") if row.comparison is None else cell(row.comparison)


def _text(text: Callable[[Comparison], str]) -> Callable[[StudyRow], str]:
    return lambda row: "" if row.comparison is None else text(row.comparison)


def _needed(comparison: ComparisonResult, row: StudyRow) -> str:
    if row.comparison is None or row.label not in comparison.seeds_needed:
        return ""
    count = comparison.seeds_needed[row.label]
    return "> 1000" if count is None else str(count)


def _order(comparison: ComparisonResult, row: StudyRow) -> float | None:
    return None if row.comparison is None else comparison.seeds_needed.get(row.label)


def _run_columns(comparison: ComparisonResult) -> list[Column[ComparedRun]]:
    metric = comparison.judged.metric
    return [
        Column(
            comparison.by, lambda run: Cell(run.row), values={comparison.by: lambda run: run.row}
        ),
        Column(
            "seed",
            lambda run: Cell("—" if run.seed is None else str(run.seed)),
            values={"seed": lambda run: run.seed},
        ),
        Column(
            metric.title,
            lambda run: number_cell(run.values[-1], f"{{:.{metric.digits}f}}"),
            values={metric.label: lambda run: run.values[-1]},
        ),
        Column("values", lambda run: number_cell(len(run.values), "{}")),
        Column("file", lambda run: Cell(run.file), values={"file": lambda run: run.file}),
    ]
