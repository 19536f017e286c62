"""How the figures of a row are written: as texts, and as cells of a table."""

from __future__ import annotations

import math
from collections.abc import Sequence

from attnlab.page.columns import Value
from attnlab.page.tables import Cell, CellTone, number_cell
from attnlab.results.metric import Metric
from attnlab.results.speed import TimedNetwork
from attnlab.results.table import (
    Comparison,
    Equivalence,
    StudyRow,
    Summary,
)


def interval_kind(sequential: bool) -> str:
    """The kind of interval that verdicts are by."""
    return "anytime-valid" if sequential else "Student-t"


def distinct_digits(values: Sequence[float], fewest: int = 3, most: int = 6) -> int:
    """Return how many digits after the point it takes to see that values that differ do differ."""
    for digits in range(fewest, most):
        if len({f"{value:.{digits}f}" for value in values}) == len(set(values)):
            return digits
    return most


def summary_cell(summary: Summary | None, metric: Metric, quiet: bool = False) -> Cell:
    """A mean with its standard deviation: `96.38 ± 0.79`."""
    if summary is None:
        return Cell("—")
    mean, _, std = summary.text(metric.digits).partition(" ")
    return Cell(mean, std, summary.mean, "quiet" if quiet else "")


def delta_cell(row: StudyRow, metric: Metric) -> Cell:
    """Δ with its interval; of the plain backbone its result."""
    value = row.values.get(metric.name)
    if value is None:
        return Cell("missing", tone="quiet")
    compared = row.comparison
    if compared is None:
        text = metric.shown_text(value.mean)
        return Cell(text, order=0.0 if row.plain else None, tone="quiet")
    mean, low, high = compared.difference.mean, compared.low, compared.high
    interval = "" if low is None or high is None else metric.interval_text(low, high)
    return Cell(metric.signed(mean), interval, mean, compared_tone(compared))


def compared_tone(compared: Comparison) -> CellTone:
    """Coloured if the study says that it is a gain or a loss."""
    if compared.standing == "gain":
        return "gain"
    return "loss" if compared.standing == "loss" else "quiet"


def summary_text(value: Summary | None, metric: Metric) -> str:
    return "" if value is None else value.text(metric.digits)


def summary_mean(summary: Summary | None) -> float | None:
    return None if summary is None else summary.mean


def summary_std(summary: Summary | None) -> float | None:
    return None if summary is None else summary.std


def delta_text(found: Comparison | None, metric: Metric) -> str:
    if found is None:
        return ""
    mean = metric.signed(found.difference.mean)
    if found.low is None or found.high is None:
        return f"{mean} [–]"
    return f"{mean} {metric.interval_text(found.low, found.high)}"


def equivalence_text(found: Equivalence, metric: Metric) -> str:
    interval = "[–]"
    if found.low is not None and found.high is not None:
        interval = metric.interval_text(found.low, found.high)
    return f"{metric.signed(found.mean)} {interval}"


def p_text(found: Comparison | None) -> str:
    """Without an interval there is no verdict, so its p-value would mislead."""
    if found is None or found.adjusted_p is None or found.low is None or found.high is None:
        return ""
    return f"{found.adjusted_p:.3f}"


def p_cell(value: Value) -> Cell:
    return number_cell(value if isinstance(value, float) else None, "{:.3g}")


def gain_cell(row: StudyRow, metric: Metric) -> Cell:
    return Cell("—", order=0.0) if row.plain else delta_cell(row, metric)


def verdict_cell(compared: Comparison | None) -> Cell:
    return Cell("") if compared is None else Cell(compared.verdict, compared.note)


def seeds_text(row: StudyRow) -> str:
    planned = len(row.seeds) + len(row.missing)
    found = f"{len(row.seeds)}" if not row.missing else f"{len(row.seeds)} of {planned}"
    stale = _stale(row)
    return f"{found}, {stale}" if stale else found


def _stale(row: StudyRow) -> str:
    """`3 stale`; why they are has a line of its own among the changes of the table."""
    number = sum(int(reason.partition(":")[0]) for reason in row.stale)
    return f"{number} stale" if number else ""


def seeds_cell(row: StudyRow) -> Cell:
    """`3 / 5`, and `3 stale`."""
    return Cell(f"{len(row.seeds)} / {len(row.seeds) + len(row.missing)}", _stale(row))


def ratio_text(timed: TimedNetwork | None) -> str:
    return "" if timed is None else f"{timed.ratio:.2f} [{timed.low:.2f}, {timed.high:.2f}]"


def error_cell(error: float | None) -> Cell:
    """A fold whose output changes by less than 1e-6 is right as far as float32 can tell."""
    shown = "—" if error is None else f"{error:.1e}{' ✓' if error < 1e-6 else ''}"
    return Cell(shown, order=error)


def digits_cell(value: float | None) -> Cell:
    """Three digits are seen: 0.0123, 1.80, 41.0, 1230."""
    digits = 2 if not value else max(0, 2 - math.floor(math.log10(abs(value))))
    return number_cell(value, f"{{:.{digits}f}}")
