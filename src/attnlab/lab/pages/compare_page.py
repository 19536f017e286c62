"""The page of results that others made."""

from __future__ import annotations

from math import isfinite

from attnlab.lab.comparison.columns import page_table, run_table, run_values
from attnlab.lab.comparison.result import ComparisonResult
from attnlab.lab.pages.figures import MetricCurve, curves_figure, forest_figure
from attnlab.lab.pages.help import forest_rows
from attnlab.page.parts import (
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
)
from attnlab.page.plot import FULL
from attnlab.results.origin import as_sentence

_CURVES = 3
"""So many rows have a curve: the baseline, the best and the worst."""


def compare_page(comparison: ComparisonResult) -> Page:
    """Show what a comparison found."""
    sections = [_help(comparison), *_way(comparison), _numbers(comparison)]
    sections += [_alerts(comparison), _reproduce(comparison)]
    title, chips = comparison.judged.title, _chips(comparison)
    return Page(title, comparison.verdict, chips, sections, "Results compared")


def _chips(comparison: ComparisonResult) -> list[Chip]:
    table = comparison.judged
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


def _help(comparison: ComparisonResult) -> Section:
    (group,) = comparison.judged.groups
    rows = forest_rows(group)
    metric, level = comparison.judged.metric, f"{100 * comparison.judged.level:g} %"
    kind = "anytime-valid" if comparison.judged.sequential else "Student-t"
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


def _way(comparison: ComparisonResult) -> list[Section]:
    """The way there, where the logs have one."""
    (group,) = comparison.judged.groups
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
    # Logs of others do not say of which images a value is.
    figure = curves_figure(curves, [], comparison.judged.metric, part=None, width=FULL)
    lead = "Mean over runs, and their range, as logged; where one run has ended, its row ends."
    if len(curves) < len(group.rows):
        lead += f" Of {len(group.rows)} rows, the baseline, the best and the worst."
    return [Section("How did they get there?", lead, [Figure(figure)])]


def _curve(comparison: ComparisonResult, row: str) -> MetricCurve:
    columns = list(zip(*(run.values for run in comparison.runs if run.row == row), strict=False))
    mean = [sum(column) / len(column) for column in columns]
    return MetricCurve(row, mean, [min(c) for c in columns], [max(c) for c in columns])


def _numbers(comparison: ComparisonResult) -> Section:
    lead = (
        f"Δ is to {comparison.judged.groups[0].backbone}, by seed where seeds are shared. The last "
        f"column: how many paired seeds would show a difference as large as this one, with a "
        f"probability of 80 %."
    )
    parts: list[Part | Folded] = [
        page_table(comparison),
        Folded("Every run", [run_table(comparison)]),
        Download("comparison.csv", run_values(comparison).to_csv()),
    ]
    return Section("All numbers", lead, parts)


def _alerts(comparison: ComparisonResult) -> Section:
    found = [
        Chip(f"{file} is left out.", "warn", f"It {why}.") for file, why in comparison.left_out
    ]
    found += [Chip(as_sentence(note)) for note in comparison.notes]
    return Section("Alerts", "", [Notes(found or [Chip("Nothing to report.", "good")])])


def _reproduce(comparison: ComparisonResult) -> Section:
    return Section("Reproduce", "", [Code(comparison.command or "attnlab.compare(…)", "Command")])
