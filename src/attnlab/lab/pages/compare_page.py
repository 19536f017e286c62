"""The page of results that others made."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from math import isfinite
from typing import Any

from attnlab.lab.pages.figures import Curve, curves_figure, forest_figure
from attnlab.lab.pages.standing import forest_rows, standing_of
from attnlab.lab.pages.verdict import verdict_sentence
from attnlab.page.parts import (
    Cell,
    Chip,
    Code,
    Download,
    Figure,
    Folded,
    Legend,
    Notes,
    Page,
    Part,
    Section,
    Table,
    number_cell,
)
from attnlab.page.rendering import render
from attnlab.results.comparison import StoredComparison, to_comparison
from attnlab.results.table import Row

_CURVES = 3
"""So many rows have a curve: the baseline, the best and the worst."""


def compare_page(found: Mapping[str, Any]) -> str:
    """A comparison as HTML; `found` is what its JSON file holds."""
    comparison = to_comparison(dict(found))
    sections = [_help(comparison), *_way(comparison), _numbers(comparison)]
    sections += [_alerts(comparison), _reproduce(comparison)]
    table = comparison.table
    page = Page(table.title, _verdict(comparison), _chips(comparison), sections, "Results compared")
    return render(page)


def _verdict(comparison: StoredComparison) -> str:
    (group,) = comparison.table.groups
    compared = {row.label: row.comparison for row in group.rows if row.comparison is not None}
    reasons = dict.fromkeys(each.note for each in compared.values() if each.note)
    verdicts = {row: {"the logs": each.verdict} for row, each in compared.items()}
    number = max(len(row.seeds) for row in group.rows)
    return verdict_sentence(verdicts, group.backbone, number, list(reasons)).replace(
        " on the logs", ""
    )


def _chips(comparison: StoredComparison) -> list[Chip]:
    table = comparison.table
    left = len(comparison.left_out)
    looked = "anytime-valid intervals" if table.sequential else "seeds fixed before the first look"
    return [
        Chip(f"{len(comparison.runs)} runs"),
        *([Chip(f"{left} left out", "warn")] if left else []),
        Chip(f"rows by {comparison.by}"),
        Chip(looked),
        Chip(comparison.date),
        Chip(f"attnlab {comparison.version}"),
    ]


def _help(comparison: StoredComparison) -> Section:
    (group,) = comparison.table.groups
    rows = forest_rows(group)
    metric, level = comparison.table.metric, f"{100 * comparison.table.level:g} %"
    kind = "anytime-valid" if comparison.table.sequential else "Student-t"
    lower = " Lower is better: a gain lies left of zero." if metric.direction else ""
    lead = (
        f"Each small dot is one seed minus the same seed of {group.backbone}. Bar: {level} {kind} "
        f"interval of the mean difference. Grey means that the interval contains zero, or that "
        f"there is none.{lower}"
    )
    if not rows:
        return Section("Does it help?", "No difference is a number: see the alerts.", [])
    legend = [("gain", "gain"), ("noise", "within noise"), ("loss", "loss")]
    legend.append(("only", "before correction only"))
    return Section("Does it help?", lead, [Legend(legend), Figure(forest_figure(rows, metric))])


def _way(comparison: StoredComparison) -> list[Section]:
    """The way there, where the logs have one."""
    (group,) = comparison.table.groups
    compared = [row for row in group.rows if row.comparison is not None]
    finite = [
        row for row in compared if row.comparison and isfinite(row.comparison.difference.mean)
    ]
    ranked = sorted(finite, key=lambda r: r.comparison.difference.mean if r.comparison else 0.0)
    chosen = [row.label for row in group.rows if row.plain]
    chosen += [row.label for row in (ranked[-1:] + ranked[:1] if len(ranked) > 1 else ranked)]
    curves = [_curve(comparison, row) for row in chosen[:_CURVES]]
    if any(len(curve.mean) < 2 for curve in curves):
        return []
    figure = curves_figure(curves, [], comparison.table.metric)
    lead = "Mean over runs, and their range, as logged; where one run has ended, its row ends."
    return [Section("How did they get there?", lead, [Figure(figure)])]


def _curve(comparison: StoredComparison, row: str) -> Curve:
    columns = list(zip(*(run.values for run in comparison.runs if run.row == row), strict=False))
    mean = [sum(column) / len(column) for column in columns]
    return Curve(row, mean, [min(c) for c in columns], [max(c) for c in columns])


def _numbers(comparison: StoredComparison) -> Section:
    metric = comparison.table.metric
    columns = [comparison.by, "runs", metric.title, "best", "Δ", "Student-t", "anytime"]
    columns += ["p (Holm)", "verdict", "seeds for 80 %"]
    lines = [_line(comparison, row) for row in comparison.table.groups[0].rows]
    runs = [
        [
            Cell(run.row),
            Cell("—" if run.seed is None else str(run.seed)),
            number_cell(run.values[-1], f"{{:.{metric.digits}f}}"),
            number_cell(len(run.values), "{}"),
            Cell(run.file),
        ]
        for run in comparison.runs
    ]
    every = Table([comparison.by, "seed", metric.title, "values", "file"], runs)
    lead = (
        f"Δ is to {comparison.table.groups[0].backbone}, by seed where seeds are shared. The last "
        f"column: how many paired seeds would show a difference as large as this one, with a "
        f"probability of 80 %."
    )
    parts: list[Part | Folded] = [
        Table(columns, lines),
        Folded("Every run", [every]),
        Download("comparison.csv", to_csv(comparison)),
    ]
    return Section("All numbers", lead, parts)


def _line(comparison: StoredComparison, row: Row) -> list[Cell]:
    metric, compared = comparison.table.metric, row.comparison
    form = f"{{:.{metric.digits}f}}"
    value = row.values[metric.name]
    std = "" if value.std is None else f"± {value.std:.{metric.digits}f}"
    cells = [
        Cell(row.label),
        number_cell(len(row.seeds), "{}"),
        Cell(form.format(value.mean), std, value.mean),
        number_cell(None if row.best is None else row.best.mean, form),
    ]
    if compared is None:
        return [*cells, *(Cell("—") for _ in range(6))]
    difference, needed = compared.difference, comparison.seeds_needed
    tones = {"gain": "gain", "loss": "loss"}
    tone = tones.get(standing_of(compared), "quiet")
    intervals = [difference.figures(sequential)[:2] for sequential in (False, True)]
    count = needed.get(row.label)
    return [
        *cells,
        Cell(metric.signed(difference.mean), "", difference.mean, tone),  # type: ignore[arg-type]
        *(
            Cell("—" if low is None or high is None else metric.interval_text(low, high))
            for low, high in intervals
        ),
        number_cell(compared.adjusted_p, "{:.3g}"),
        Cell(compared.verdict, compared.note),
        Cell("> 1000") if row.label in needed and count is None else number_cell(count, "{}"),
    ]


def _alerts(comparison: StoredComparison) -> Section:
    found = [
        Chip(f"{file} is left out.", "warn", f"It {why}.") for file, why in comparison.left_out
    ]
    found += [Chip(f"{note[:1].upper()}{note[1:]}.") for note in comparison.table.notes]
    return Section("Alerts", "", [Notes(found or [Chip("Nothing to report.", "good")])])


def _reproduce(comparison: StoredComparison) -> Section:
    return Section("Reproduce", "", [Code(comparison.command or "attnlab.compare(…)", "Command")])


def to_csv(comparison: StoredComparison) -> str:
    """One line per run."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([comparison.by, "seed", comparison.table.metric.label, "file"])
    for run in comparison.runs:
        seed = "" if run.seed is None else run.seed
        writer.writerow([run.row, seed, run.values[-1], run.file])
    return text.getvalue()
