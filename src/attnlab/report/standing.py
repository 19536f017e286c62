"""Where each module stands against the plain backbone, read off the study's table."""

from __future__ import annotations

from attnlab.report.figures import ForestRow, Standing
from attnlab.report.read import StudyRecord
from attnlab.study.statistics import Comparison
from attnlab.study.table import Group, Row


def standing_of(comparison: Comparison) -> Standing:
    """In the words of the page. "gain" and "loss" are the study's verdicts, after Holm."""
    difference = comparison.difference
    if difference.low is None or difference.high is None:
        return "no interval"
    if comparison.verdict in ("better", "worse"):
        return "gain" if comparison.verdict == "better" else "loss"
    if difference.low <= 0 <= difference.high:
        return "within noise"
    return "before correction only"


def plain_row(group: Group) -> Row | None:
    return next((row for row in group.rows if row.plain), None)


def forest_rows(record: StudyRecord, group: Group) -> list[ForestRow]:
    """The modules of a group that can be compared, in the study's order."""
    plain = plain_row(group)
    if plain is None:
        return []
    base = {run.seed: run.result.top1 for run in record.of(group, plain.label) if run.result}
    found = []
    for row in group.rows:
        if row.comparison is None:
            continue
        own = {run.seed: run.result.top1 for run in record.of(group, row.label) if run.result}
        difference = row.comparison.difference
        found.append(
            ForestRow(
                row.label,
                difference.mean,
                difference.low,
                difference.high,
                standing_of(row.comparison),
                {seed: 100 * (own[seed] - base[seed]) for seed in difference.seeds},
            )
        )
    return found
