"""What a study's table answers, line by line: what is better, what is not shown, what it costs and
what costs nothing."""

from __future__ import annotations

from collections.abc import Iterator

from attnlab._words import a
from attnlab.results.metric import Metric
from attnlab.results.speed import TimedNetwork
from attnlab.results.table import Group, StudyRow, StudyTable, Verdict

_SAID: dict[Verdict, str] = {
    "better": "Better than the plain network",
    "worse": "Worse than the plain network",
    "no difference shown": "Not shown to be better or worse",
    "cannot tell": "Cannot be told",
}


def table_answer(table: StudyTable) -> list[str]:
    """Return all lines of every group, with its name in front if there are several."""
    lines = []
    for group in table.groups:
        on = f"{group.name}: " if len(table.groups) > 1 else ""
        own = [*_verdict_lines(group, table.metric), *cost_lines(group, table.metric)]
        lines += [f"{on}{line}" for line in own]
    return lines


def cost_lines(group: Group, metric: Metric) -> list[str]:
    """Return what is as good within the study's margin, what it takes, and what folds."""
    return [*_equivalence_lines(group, metric), *_time_lines(group, metric), *_fold_lines(group)]


def points(metric: Metric, difference: str) -> str:
    """`2 points`; the metric's own unit where it is not a percentage."""
    unit = metric.difference_unit
    named = ("point" if difference == "1" else "points") if unit == "pt" else unit
    return f"{difference} {named}".strip()


def _verdict_lines(group: Group, metric: Metric) -> Iterator[str]:
    for verdict, said in _SAID.items():
        rows = [
            f"{row.label} ({_difference(row, metric)})"
            for row in group.rows
            if row.comparison is not None and row.comparison.verdict == verdict
        ]
        if rows:
            yield f"{said}: {', '.join(rows)}."
        elif verdict == "better" and any(row.comparison is not None for row in group.rows):
            yield f"{said}: none."


def _difference(row: StudyRow, metric: Metric) -> str:
    """`+0.21 points [−0.46, +0.88]`, or why there is no interval."""
    compared = row.comparison
    if compared is None:
        return ""
    mean = points(metric, metric.signed(compared.difference.mean))
    if compared.low is None or compared.high is None:
        return f"{mean}; {compared.note}" if compared.note else mean
    note = f"; {compared.note}" if compared.note else ""
    return f"{mean} {metric.interval_text(compared.low, compared.high)}{note}"


def _equivalence_lines(group: Group, metric: Metric) -> Iterator[str]:
    judged = [(row.label, row.equivalence) for row in group.rows if row.equivalence is not None]
    if not judged:
        return
    asked = judged[0][1]
    as_good = f"as good as {asked.to}, to within {points(metric, f'{asked.margin:g}')}"
    shown = [label for label, each in judged if each.verdict == "equivalent"]
    others = [label for label, each in judged if each.verdict != "equivalent"]
    if shown:
        yield f"{as_good[:1].upper()}{as_good[1:]}: {', '.join(shown)}."
    if others:
        yield f"Not shown to be {as_good}: {', '.join(others)}."


def _time_lines(group: Group, metric: Metric) -> Iterator[str]:
    if group.timed is None:
        return
    others = [
        f"{row.label} {_ratio(row.speed)}"
        for row in group.rows
        if row.speed is not None and row.label != group.timed.reference
    ]
    if others:
        yield f"Time of {a(metric.sample)}, {group.timed.reference} = 1: {', '.join(others)}."


def _fold_lines(group: Group) -> Iterator[str]:
    for row in group.rows:
        if row.fold_error is None:
            continue
        text = f"{row.label} folds into the layers before it: its outputs change by at most "
        text += f"{row.fold_error:.0e} (float64)"
        if row.folded_parameters is not None:
            text += f", {row.folded_parameters:,} parameters are left"
        timed = row.folded_speed
        if timed is not None and group.timed is not None:
            free = ", no difference shown" if timed.low <= 1 <= timed.high else ""
            text += f", and it takes {_ratio(timed)} of the time of {group.timed.reference}{free}"
        yield f"{text}."


def _ratio(timed: TimedNetwork) -> str:
    return f"{timed.ratio:.2f} [{timed.low:.2f}, {timed.high:.2f}]"
