"""The table of a study as text: cells for the terminal, and Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from attnlab.results import Metric
from attnlab.results.speed import TimedNetwork
from attnlab.results.table import Equivalence, Group, Row, StudyTable, Summary

Cells = tuple[list[str], list[list[str]]]
"""Headings, and rows under them; the first column is text, the others are numbers."""


def column_notes(table: StudyTable) -> list[str]:
    """What the columns are."""
    metric = table.metric
    unit = f" ({metric.difference_unit})" if metric.difference_unit else ""
    interval = "an anytime-valid interval" if table.sequential else "a Student-t interval"
    return [
        f"{metric.label} is the last epoch of the recipe, mean ± std over seeds"
        f"{'' if metric.better == 'higher' else ', lower is better'}; the best epoch* was chosen "
        f"by looking at the test images, so it is optimistic and not a result",
        f"Δ is the paired difference by seed to the plain backbone{unit}, with {interval}; p by "
        f"Holm over the modules of the table; nothing is called better when the interval contains "
        f"zero",
        *_equivalence_notes(table),
        *_speed_notes(table),
        "train images/s were timed in each run alone: a ratio of them is only as good as the "
        "machine was quiet",
    ]


def _equivalence_notes(table: StudyTable) -> list[str]:
    found = _first_equivalence([row for group in table.groups for row in group.rows])
    if found is None:
        return []
    interval = "an anytime-valid interval" if found.sequential else "its 90% interval"
    return [
        f"as good as {found.to}: two one-sided paired tests that the difference lies within "
        f'±{found.margin:g}, with {interval}; Holm over the rows. "not shown" is not a difference'
    ]


def _first_equivalence(rows: Sequence[Row]) -> Equivalence | None:
    return next((row.equivalence for row in rows if row.equivalence is not None), None)


def equivalence_cells(table: StudyTable, group: Group) -> Cells | None:
    """Which rows are as good as the one that the study names; None where it names none."""
    found = _first_equivalence(group.rows)
    if found is None:
        return None
    digits = table.metric.digits
    rows = []
    for row in group.rows:
        own = row.equivalence
        if own is None:
            rows.append([row.label, "", "", ""])
            continue
        interval = "[–]"
        if own.low is not None and own.high is not None:
            interval = f"[{own.low:+.{digits}f}, {own.high:+.{digits}f}]"
        p = "" if own.adjusted_p is None else f"{own.adjusted_p:.3f}"
        rows.append([row.label, f"{own.mean:+.{digits}f} {interval}", p, own.text])
    return ["module", f"Δ to {found.to}", "p (Holm)", f"as good, within ±{found.margin:g}"], rows


def _speed_notes(table: StudyTable) -> list[str]:
    """How the networks were timed, or why they were not, each text once."""
    notes = []
    for group in table.groups:
        timed = group.timed
        if timed is None:
            notes.append(f"no time: {group.why_not_timed}")
            continue
        busy = f"; {timed.busy}" if timed.busy else ""
        notes.append(
            f"time is that of one network per row, all in turns, relative to {timed.reference}, "
            f"with its 95% interval ({timed.rounds} rounds of {timed.batch} images, "
            f"{timed.threads} threads){busy}"
        )
    return list(dict.fromkeys(notes))


def result_cells(table: StudyTable, group: Group) -> Cells:
    """What the modules gain, beside what the paper prints."""
    metric = table.metric
    heads = ["module", "seeds", metric.title, "best epoch*", f"Δ [{table.level:.0%} interval]"]
    heads += ["p (Holm)", "verdict"]
    printed = any(metric.name in row.paper for row in group.rows)
    if printed:
        heads += [f"paper {metric.title}", "paper Δ"]
    rows = []
    for row in group.rows:
        cells = [row.label, _seeds(row), _text(row.values.get(metric.name), metric)]
        cells += [_text(row.best, metric), *_difference(row, metric)]
        if printed:
            cells += [_printed(row, metric), _paper_gain(row, group.plain, metric)]
        rows.append(cells)
    return heads, rows


def metric_cells(table: StudyTable, group: Group) -> Cells | None:
    """The other metrics; None where there are none."""
    others = [
        each for each in table.metrics[1:] if any(each.name in row.values for row in group.rows)
    ]
    if not others:
        return None
    rows = [
        [row.label, *(_text(row.values.get(each.name), each) for each in others)]
        for row in group.rows
    ]
    return ["module", *(each.title for each in others)], rows


def cost_cells(table: StudyTable, group: Group) -> Cells:
    """What they cost, what they do to the trajectory, and what is left when they are folded."""
    heads = ["module", "parameters", "MACs", "train images/s", "TNS"]
    heads += ["folded parameters", "fold error", f"folded {table.metric.title}"]
    rows = [
        [
            row.label,
            "" if row.parameters is None else f"{row.parameters:,}",
            "" if row.macs is None else f"{row.macs:,}",
            "" if row.train_speed is None else f"{row.train_speed:,.0f}",
            "" if row.tns is None else row.tns.text(4),
            "" if row.folded_parameters is None else f"{row.folded_parameters:,}",
            "" if row.fold_error is None else f"{row.fold_error:.0e}",
            _text(row.folded, table.metric),
        ]
        for row in group.rows
    ]
    return heads, rows


def time_cells(group: Group) -> Cells | None:
    """What they take in time, all in turns; None where they were not timed."""
    if group.timed is None:
        return None
    reference = group.timed.reference
    rows = []
    for row in group.rows:
        own = "1" if row.label == reference else _time(row.speed)
        taken = "" if row.speed is None else f"{row.speed.milliseconds:.3g}"
        rows.append([row.label, taken, own, _time(row.folded_speed)])
    return ["module", "ms / image", f"time / {reference} [95% interval]", "folded"], rows


def _time(timed: TimedNetwork | None) -> str:
    return "" if timed is None else f"{timed.ratio:.2f} [{timed.low:.2f}, {timed.high:.2f}]"


def all_cells(table: StudyTable, group: Group) -> list[Cells]:
    """The tables of a group, in their order."""
    found = (
        result_cells(table, group),
        equivalence_cells(table, group),
        metric_cells(table, group),
        cost_cells(table, group),
        time_cells(group),
    )
    return [cells for cells in found if cells is not None]


def markdown(table: StudyTable) -> str:
    """The whole table as Markdown."""
    parts = [f"# {table.title}"]
    for group in table.groups:
        parts.append(f"## {group.name}")
        parts += [_markdown(*cells) for cells in all_cells(table, group)]
    parts.append("\n".join(f"* {line}" for line in footnotes(table)))
    return "\n\n".join(parts) + "\n"


def footnotes(table: StudyTable) -> list[str]:
    """What must be known to read the table."""
    lines = [*table.changes, *table.notes, *column_notes(table), *_missing_intervals(table)]
    if table.paper_source:
        lines.append(f"paper: {table.paper_source}. {table.paper_note}".strip())
    return lines


def _missing_intervals(table: StudyTable) -> list[str]:
    """Why rows have no verdict, each reason once."""
    compared = [row.comparison for group in table.groups for row in group.rows]
    notes = [comparison.note for comparison in compared if comparison is not None]
    return [f"[–]: {note}" for note in dict.fromkeys(notes) if note]


def _seeds(row: Row) -> str:
    planned = len(row.seeds) + len(row.missing)
    found = f"{len(row.seeds)}" if not row.missing else f"{len(row.seeds)} of {planned}"
    return f"{found}, stale {'; '.join(row.stale)}" if row.stale else found


def _difference(row: Row, metric: Metric) -> list[str]:
    found = row.comparison
    if found is None:
        return ["", "", ""]
    mean = f"{found.difference.mean:+.{metric.digits}f}"
    if found.low is None or found.high is None:
        return [f"{mean} [–]", "", found.verdict]
    interval = f"{mean} [{found.low:+.{metric.digits}f}, {found.high:+.{metric.digits}f}]"
    p = "" if found.adjusted_p is None else f"{found.adjusted_p:.3f}"
    return [interval, p, found.verdict]


def _printed(row: Row, metric: Metric) -> str:
    figure = row.paper.get(metric.name)
    return "" if figure is None else figure.text(metric.digits)


def _paper_gain(row: Row, plain: Row | None, metric: Metric) -> str:
    if row.plain or plain is None:
        return ""
    own, base = row.paper.get(metric.name), plain.paper.get(metric.name)
    return "" if own is None or base is None else f"{own.mean - base.mean:+.{metric.digits}f}"


def _text(value: Summary | None, metric: Metric) -> str:
    return "" if value is None else value.text(metric.digits)


def _markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
