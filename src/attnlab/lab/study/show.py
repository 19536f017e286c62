"""A study's table in Markdown, and what must be known to read it."""

from __future__ import annotations

from attnlab.results.columns import StudyColumns
from attnlab.results.table import StudyTable


def column_notes(table: StudyTable) -> list[str]:
    """Return what the columns are."""
    metric = table.metric
    unit = f" ({metric.difference_unit})" if metric.difference_unit else ""
    interval = "an anytime-valid interval" if table.sequential else "a Student-t interval"
    rows = (row.comparison for group in table.groups for row in group.rows)
    if not table.sequential and any(each is not None and each.sequential for each in rows):
        interval += " (rows that were added after a look: anytime-valid)"
    return [
        f"{metric.label} is the last {table.unit} of the recipe, mean ± std over seeds"
        f"{'' if metric.better == 'higher' else ', lower is better'}; the best {table.unit}* was "
        f"chosen by looking at the test {metric.samples}, so it is optimistic and not a result",
        f"Δ is the paired difference by seed to the plain backbone{unit}, with {interval}; p by "
        f"Holm over the modules of the table; nothing is called better when the interval contains "
        f"zero",
        *_equivalence_notes(table),
        *_speed_notes(table),
        f"train {metric.samples}/s were timed in each run alone: a ratio of them is only as good "
        "as the machine was quiet",
    ]


def _equivalence_notes(table: StudyTable) -> list[str]:
    rows = (row for group in table.groups for row in group.rows)
    found = next((row.equivalence for row in rows if row.equivalence is not None), None)
    if found is None:
        return []
    interval = "an anytime-valid interval" if found.sequential else "its 90% interval"
    return [
        f"as good as {found.to}: two one-sided paired tests that the difference lies within "
        f'±{found.margin:g}, with {interval}; Holm over the rows. "not shown" is not a difference'
    ]


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
            f"time is that of one network per row, all interleaved, relative to {timed.reference}, "
            f"with its 95% interval ({timed.rounds} rounds of {timed.batch} "
            f"{table.metric.samples}, {timed.threads} thread{'s' * (timed.threads != 1)}){busy}"
        )
    return list(dict.fromkeys(notes))


def markdown(table: StudyTable) -> str:
    """The whole table as Markdown."""
    columns, parts = StudyColumns(table), [f"# {table.title}"]
    for group in table.groups:
        parts.append(f"## {group.name}")
        parts += [each.to_markdown().rstrip("\n") for each in columns.terminal(group)]
    parts.append("\n".join(f"* {line}" for line in study_footnotes(table)))
    return "\n\n".join(parts) + "\n"


def study_footnotes(table: StudyTable) -> list[str]:
    """Return what must be known to read the table."""
    lines = [*table.changes, *table.mixed, *table.notes]
    lines += [*column_notes(table), *_missing_intervals(table)]
    if table.paper_source:
        lines.append(f"paper: {table.paper_source}. {table.paper_note}".strip())
    return lines


def _missing_intervals(table: StudyTable) -> list[str]:
    """Why rows have no verdict, each reason once."""
    compared = [row.comparison for group in table.groups for row in group.rows]
    notes = [comparison.note for comparison in compared if comparison is not None]
    return [f"[–]: {note}" for note in dict.fromkeys(notes) if note]
