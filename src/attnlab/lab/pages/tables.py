"""All numbers of a study: on the page, as CSV and as LaTeX."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from typing import Any

from attnlab.lab.pages.standing import standing_of
from attnlab.page.parts import Cell, Table, number_cell
from attnlab.results import Metric
from attnlab.results.record import StudyRecord
from attnlab.results.table import Comparison, Equivalence, Row, Summary

_TONES = {"gain": "gain", "loss": "loss"}
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
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
    "²": r"$^2$",
    "|": r"$|$",
}


def numbers(record: StudyRecord) -> list[dict[str, Any]]:
    """One dictionary per row of every group, all with the same keys; None where there is none.
    `delta_low`, `delta_high` and `p` are those that the verdict is by, as `interval` says."""
    metrics = record.table.metrics
    return [
        {"data": group.data, "backbone": group.backbone, **_numbers(row, metrics)}
        for group in record.table.groups
        for row in group.rows
    ]


def to_csv(record: StudyRecord) -> str:
    """`numbers` as comma-separated values."""
    lines = numbers(record)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([map(_cell, lines[0]), *(map(_cell, line.values()) for line in lines)])
    return text.getvalue()


def _cell(value: Any) -> Any:
    """A text that a spreadsheet would take for a formula is marked as text."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def to_latex(record: StudyRecord) -> str:
    """A table that needs no package: the result of every group, and Δ with its interval below."""
    groups, metric = record.table.groups, record.metric
    labels = list(dict.fromkeys(row.label for group in groups for row in group.rows))
    direction = f", {metric.direction}" if metric.direction else ""
    kind = interval_kind(record.table.sequential)
    lines = [
        f"% {record.table.study}: {metric.title}{direction}; mean and standard deviation over",
        "% seeds, last epoch. Below it the difference paired by seed with its",
        f"% {record.level} {kind} interval; bold after Holm.",
        f"\\begin{{tabular}}{{l{'r' * len(groups)}r}}",
        "\\hline",
        " & ".join(["module", *(latex(record.name_of(g)) for g in groups), "parameters"]) + r" \\",
        "\\hline",
    ]
    for label in labels:
        rows = [next((r for r in g.rows if r.label == label), None) for g in groups]
        parameters = next((f"{r.parameters / 1e6:.3f}M" for r in rows if r and r.parameters), "--")
        results = [_latex_result(row, metric) for row in rows]
        lines.append(" & ".join([latex(label), *results, parameters]) + r" \\")
        if any(row and row.comparison for row in rows):
            differences = [_latex_difference(row, metric) for row in rows]
            lines.append(" & ".join(["", *differences, ""]) + r" \\")
    return "\n".join([*lines, "\\hline", "\\end{tabular}", ""])


def latex(text: str) -> str:
    """Text that LaTeX prints as it is."""
    return "".join(_LATEX.get(character, character) for character in text)


def interval_kind(sequential: bool) -> str:
    return "anytime-valid" if sequential else "Student-t"


def main_table(record: StudyRecord) -> Table:
    """One line per module: its result and Δ on every data set, and the cost."""
    groups, metric = record.table.groups, record.metric
    columns = ["module"]
    for group in groups:
        on = "" if len(groups) == 1 else f"{record.name_of(group)} "
        columns += [f"{on}{metric.title}", f"{on}Δ {metric.difference_unit}".strip()]
    columns += ["params M", "MACs M", "ms", "TNS", "params M folded", "fold error"]
    rows = groups[0].rows
    digits = [
        distinct_digits([number / 1e6 for row in rows if (number := read(row)) is not None])
        for read in (_parameters, _macs)
    ]
    lines = []
    for row in rows:
        cells = [Cell(row.label)]
        for group in groups:
            same = next((r for r in group.rows if r.label == row.label), None)
            value = None if same is None else same.values.get(metric.name)
            plain = same is not None and same.plain
            difference = Cell("—", order=0.0) if plain else delta_cell(same, metric)
            cells += [summary_cell(value, metric), difference]
        lines.append([*cells, *_cost_cells(row, *digits)])
    return Table(columns, lines)


def distinct_digits(values: Sequence[float], fewest: int = 3, most: int = 6) -> int:
    """So many behind the point that values that differ are seen to differ."""
    for digits in range(fewest, most):
        if len({f"{value:.{digits}f}" for value in values}) == len(set(values)):
            return digits
    return most


def _parameters(row: Row) -> int | None:
    return row.parameters


def _macs(row: Row) -> int | None:
    return row.macs


def full_table(record: StudyRecord) -> Table:
    """Everything, one line per module and group."""
    metric, rows = record.metric, [row for group in record.table.groups for row in group.rows]
    others = [m for m in record.table.metrics[1:] if any(m.name in row.values for row in rows)]
    unit = metric.difference_unit
    columns = ["module", "data", metric.title, f"best epoch {metric.unit}", f"paper {metric.unit}"]
    columns += [f"Δ {unit}", "p (t-test)", "p (anytime)", "p (Holm)", "verdict", "seeds"]
    columns += [other.title for other in others]
    columns += ["images/s train", "images/s test", f"{metric.label} folded"]
    lines = []
    for group in record.table.groups:
        for row in group.rows:
            compared, paper = row.comparison, row.paper.get(metric.name)
            p_values: Sequence[float | None] = [None, None, None]
            if compared is not None:
                difference = compared.difference
                p_values = [difference.p_value, difference.anytime_p, compared.adjusted_p]
            lines.append(
                [
                    Cell(row.label),
                    Cell(record.name_of(group)),
                    summary_cell(row.values.get(metric.name), metric),
                    summary_cell(row.best, metric, quiet=True),
                    Cell("" if paper is None else paper.text(metric.digits), tone="quiet"),
                    delta_cell(row, metric),
                    *(number_cell(p, "{:.3g}") for p in p_values),
                    _verdict_cell(compared),
                    _seeds_cell(row),
                    *(summary_cell(row.values.get(other.name), other) for other in others),
                    number_cell(row.train_speed, "{:.0f}"),
                    number_cell(row.inference_speed, "{:.0f}"),
                    summary_cell(row.folded, metric),
                ]
            )
    return Table([column.strip() for column in columns], lines, names=2)


def _numbers(row: Row, metrics: Sequence[Metric]) -> dict[str, Any]:
    compared, paper = row.comparison, row.paper.get(metrics[0].name)
    difference = None if compared is None else compared.difference
    name = {
        "module": row.label,
        "seeds": " ".join(map(str, row.seeds)),
        "missing_seeds": " ".join(map(str, row.missing)),
    }
    gain = {
        "delta": difference and difference.mean,
        "delta_low": compared and compared.low,
        "delta_high": compared and compared.high,
        "p": compared and compared.p_value,
        "p_holm": compared and compared.adjusted_p,
        "verdict": compared and compared.verdict,
        "parameters": row.parameters,
        "macs": row.macs,
        "train_images_per_second": row.train_speed,
        "inference_images_per_second": row.inference_speed,
        **_both("tns", row.tns),
        "fold_error": row.fold_error,
        "folded_parameters": row.folded_parameters,
    }
    more = {
        "paper_std": paper and paper.std,
        "interval": compared and interval_kind(compared.sequential),
        "cannot_tell": compared and compared.note,
        "stale": "; ".join(row.stale),
        "student_low": difference and difference.low,
        "student_high": difference and difference.high,
        "student_p": difference and difference.p_value,
        "anytime_low": difference and difference.anytime_low,
        "anytime_high": difference and difference.anytime_high,
        "anytime_p": difference and difference.anytime_p,
        "time_ratio": row.speed and row.speed.ratio,
        "time_ratio_low": row.speed and row.speed.low,
        "time_ratio_high": row.speed and row.speed.high,
        "folded_time_ratio": row.folded_speed and row.folded_speed.ratio,
        "folded_time_ratio_low": row.folded_speed and row.folded_speed.low,
        "folded_time_ratio_high": row.folded_speed and row.folded_speed.high,
        **_equivalence(row.equivalence),
    }
    taken = {"data", "backbone", "paper", "std", *name, *gain, *more}
    taken |= {f"{metric.name}_std" for metric in metrics}
    result, *others = (f"metric_{m.name}" if m.name in taken else m.name for m in metrics)
    found = {
        **name,
        **_both(result, row.values.get(metrics[0].name)),
        f"best_epoch_{result}": _mean(row.best),
        **gain,
        f"folded_{result}": _mean(row.folded),
        f"paper_{result}": paper and paper.mean,
        **more,
    }
    for column, metric in zip(others, metrics[1:], strict=True):
        found |= _both(column, row.values.get(metric.name))
    return found


def _equivalence(found: Equivalence | None) -> dict[str, Any]:
    return {
        "equivalent_to": found and found.to,
        "equivalence_margin": found and found.margin,
        "equivalence_delta": found and found.mean,
        "equivalence_low": found and found.low,
        "equivalence_high": found and found.high,
        "equivalence_p": found and found.p_value,
        "equivalence_p_holm": found and found.adjusted_p,
        "equivalence": found and found.text,
    }


def _both(name: str, summary: Summary | None) -> dict[str, float | None]:
    return {name: _mean(summary), f"{name}_std": None if summary is None else summary.std}


def _mean(summary: Summary | None) -> float | None:
    return None if summary is None else summary.mean


def delta_cell(row: Row | None, metric: Metric) -> Cell:
    """Δ with its interval; of the plain backbone its result."""
    value = None if row is None else row.values.get(metric.name)
    if row is None or value is None:
        return Cell("missing", tone="quiet")
    compared = row.comparison
    if compared is None:
        text = metric.shown_text(value.mean)
        return Cell(text, order=0.0 if row.plain else None, tone="quiet")
    mean, low, high = compared.difference.mean, compared.low, compared.high
    interval = "" if low is None or high is None else metric.interval_text(low, high)
    tone = _TONES.get(standing_of(compared), "quiet")
    return Cell(metric.signed(mean), interval, mean, tone)  # type: ignore[arg-type]


def _verdict_cell(compared: Comparison | None) -> Cell:
    return Cell("") if compared is None else Cell(compared.verdict, compared.note)


def _seeds_cell(row: Row) -> Cell:
    """`3 / 5`, and `3 stale: the gate's source changed`."""
    stale = "; ".join(reason.replace(":", " stale:", 1) for reason in row.stale)
    return Cell(f"{len(row.seeds)} / {len(row.seeds) + len(row.missing)}", stale)


def _cost_cells(row: Row, parameter_digits: int, mac_digits: int) -> list[Cell]:
    milliseconds = None if row.speed is None else row.speed.milliseconds
    millions = [
        None if number is None else number / 1e6
        for number in (row.parameters, row.macs, row.folded_parameters)
    ]
    error = row.fold_error
    folded = "—" if error is None else f"{error:.1e}{' ✓' if error < 1e-6 else ''}"
    return [
        number_cell(millions[0], f"{{:.{parameter_digits}f}}"),
        number_cell(millions[1], f"{{:.{mac_digits}f}}"),
        number_cell(milliseconds, f"{{:.{_decimals(milliseconds)}f}}"),
        number_cell(_mean(row.tns), f"{{:.{_decimals(_mean(row.tns))}f}}"),
        number_cell(millions[2], f"{{:.{parameter_digits}f}}"),
        Cell(folded, order=error),
    ]


def _decimals(value: float | None) -> int:
    """So many that three digits are seen: 0.0123, 1.80, 41.0, 1230."""
    if not value:
        return 2
    return max(0, 2 - math.floor(math.log10(abs(value))))


def summary_cell(summary: Summary | None, metric: Metric, quiet: bool = False) -> Cell:
    """`96.38 ± 0.79`."""
    if summary is None:
        return Cell("—")
    mean, _, std = summary.text(metric.digits).partition(" ")
    return Cell(mean, std, summary.mean, "quiet" if quiet else "")


def _latex_result(row: Row | None, metric: Metric) -> str:
    value = None if row is None else row.values.get(metric.name)
    return "--" if value is None else latex(value.text(metric.digits))


def _latex_difference(row: Row | None, metric: Metric) -> str:
    if row is None or row.comparison is None:
        return ""
    compared = row.comparison
    text = metric.signed(compared.difference.mean)
    if compared.verdict in ("better", "worse"):
        text = f"\\textbf{{{text}}}"
    if compared.low is None or compared.high is None:
        return text
    return f"{text} {metric.interval_text(compared.low, compared.high)}"
