"""The part of a study's page about the result: does it help, and by how much?"""

from __future__ import annotations

from collections.abc import Set
from math import isfinite

from attnlab.lab.pages.figures import MOST_DOTS, ForestRow, forest_figure
from attnlab.page.glossary import words
from attnlab.page.parts import Cell, Figure, Folded, Legend, Part, Row, Section, Table
from attnlab.page.plot import BESIDE, FULL
from attnlab.results import Metric
from attnlab.results.answer import cost_lines, points
from attnlab.results.record import StudyRecord
from attnlab.results.study_cells import delta_cell, interval_kind, summary_cell
from attnlab.results.table import Group, StudyRow


def forest_rows(group: Group) -> list[ForestRow]:
    """The modules of a group that can be compared, in the study's order. One whose difference is
    not a number has no place in a picture; its reason is among the alerts."""
    plain = group.plain
    return [
        ForestRow(
            row.label,
            compared.difference.mean,
            compared.low,
            compared.high,
            compared.standing,
            {seed: row.by_seed[seed] - plain.by_seed[seed] for seed in compared.difference.seeds},
        )
        for row in group.rows
        if plain is not None
        and (compared := row.comparison) is not None
        and isfinite(compared.difference.mean)
    ]


_SHOWN = 8
"""Lines below the verdict, at most."""
_TITLE = "Does it help?"
_DOUBTFUL = "See to the alerts at the top first: until then there is nothing to take from here."


def help_section(record: StudyRecord, doubtful: bool = False) -> Section:
    """Does it help? If the study is `doubtful`, nothing is recommended."""
    groups = [(group, rows) for group in record.table.groups if (rows := forest_rows(group))]
    if not groups:
        missing = (
            "No pair of runs is finished: a module is compared with the plain backbone of the same "
            "seed."
        )
        return Section(_TITLE, "", [_table(record)] if record.finished else [], missing)
    width = FULL if len(groups) == 1 else BESIDE
    figures = [
        Figure({**forest_figure(rows, record.metric, record.name_of(group)), "width": width})
        for group, rows in groups
    ]
    standings = {row.standing for _, rows in groups for row in rows}
    parts: list[Part | Folded] = [Row(figures), _table(record), words("Δ", "interval", "Holm")]
    if standings != {"no interval"}:
        legend = [("gain", "gain"), ("noise", "within noise"), ("loss", "loss")]
        if "before correction only" in standings:
            legend.append(("only", "before correction only"))
        parts.insert(0, Legend(legend))
    to_do = _DOUBTFUL if doubtful else _to_do(record)
    return Section(_TITLE, _lead(record, groups, standings), parts, _answer(record), to_do)


def findings(record: StudyRecord) -> list[str]:
    """One line per module and data set, the largest differences first:
    `StepNet +1.60 points [−0.60, +3.80]: no difference shown`."""
    metric, several = record.metric, len(record.table.groups) > 1
    found = []
    for group in record.table.groups:
        for row in group.rows:
            compared = row.comparison
            if compared is None:
                continue
            mean, low, high = compared.difference.mean, compared.low, compared.high
            interval = "" if low is None or high is None else f" {metric.interval_text(low, high)}"
            on = f" on {record.name_of(group)}" if several else ""
            why = f" ({compared.note})" if compared.note else ""
            size = points(metric, metric.signed(mean))
            line = f"**{row.label}**{on} {size}{interval}: {compared.verdict}{why}"
            found.append((compared.verdict not in ("better", "worse"), -abs(mean), line))
    shown = [line for *_, line in sorted(found)[:_SHOWN]]
    if len(found) > _SHOWN:
        shown.append(f"{len(found) - _SHOWN} more below")
    # Of one group they are a few lines; of many they are in the section about the cost.
    return shown if several else [*shown, *cost_lines(record.table.groups[0], metric)]


def _lead(record: StudyRecord, groups: list[tuple[Group, list]], standings: Set[str]) -> str:
    seeds = {len(row.seeds) for _, rows in groups for row in rows}
    number = f"{min(seeds)}" if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)}"
    lead = "Each small dot is one seed minus the same seed without attention"
    if max(seeds) > MOST_DOTS:
        lead += f" (of more than {MOST_DOTS}, as many from the smallest to the largest)"
    lead += ". "
    if standings == {"no interval"}:
        compared = [row.comparison for group in record.table.groups for row in group.rows]
        why = dict.fromkeys(comparison.note for comparison in compared if comparison)
        return f"{lead}There is no interval and no colour ({'; '.join(why)})."
    none = ", or that there is none" if "no interval" in standings else ""
    none += ", or that nothing can be told" if "cannot tell" in standings else ""
    kind = interval_kind(record.table.sequential)
    looked = ", which is right however often one looked" if record.table.sequential else ""
    hollow = (
        " A hollow dot: zero is outside, but not after Holm's correction for many modules."
        if "before correction only" in standings
        else ""
    )
    lower = " Lower is better: a gain lies left of zero." if record.metric.direction else ""
    return (
        f"{lead}Bar: {record.level} {kind} interval of the paired mean (n = {number}){looked}. "
        f"Grey means the interval contains zero{none}.{hollow}{lower}"
    )


def _verdicts(record: StudyRecord) -> list[tuple[str, str]]:
    return [
        (row.label if len(record.table.groups) == 1 else f"{row.label} on {record.name_of(group)}",
         row.comparison.verdict)
        for group in record.table.groups
        for row in group.rows
        if row.comparison is not None
    ]  # fmt: skip


def _answer(record: StudyRecord) -> str:
    found = _verdicts(record)
    better = [name for name, verdict in found if verdict == "better"]
    worse = [name for name, verdict in found if verdict == "worse"]
    if better:
        return f"Yes, more than chance explains: {', '.join(better)}." + (
            f" It harms: {', '.join(worse)}." if worse else ""
        )
    if worse:
        names = ", ".join(worse)
        return f"No: nothing is better than the plain network, and it is better than {names}."
    if all(verdict == "cannot tell" for _, verdict in found):
        return "Nothing can be told yet."
    return "That is not shown: what is seen is no larger than what chance does between seeds."


def _to_do(record: StudyRecord) -> str:
    found, called = _verdicts(record), record.study.called
    open_ = [row for row, verdict in found if verdict not in ("better", "worse")]
    better = [row for row, verdict in found if verdict == "better"]
    first = f"Take {better[0]}, and see below what it costs. " if better else ""
    if open_:
        return (
            f"{first}To learn more about {', '.join(open_[:3])}, add seeds: "
            f"`{called.command('plan', '--effect', _effect(record))}` says how many it takes, "
            f"`{called.command('run', '--until-decided')}` adds them one by one and stays honest "
            f"about the looks."
        )
    return f"{first}The rows are decided; more seeds would only make the intervals narrower."


def _effect(record: StudyRecord) -> str:
    """The effect to plan seeds for: a point of a result in percent; of another, about what was
    seen, since one nat or one degree may be far more than any module does."""
    compared = [row.comparison for group in record.table.groups for row in group.rows]
    seen = [abs(each.difference.mean) for each in compared if each is not None]
    known = [size for size in seen if isfinite(size) and size > 0]
    return "1" if record.metric.unit == "%" or not known else f"{max(known):.1g}"


def _table(record: StudyRecord) -> Table:
    """The result of every module, the plain one among them, and its difference."""
    metric, groups = record.metric, record.table.groups
    columns = ["module"]
    for group in groups:
        on = "" if len(groups) == 1 else f"{record.name_of(group)} "
        unit = f" {metric.difference_unit}" if metric.difference_unit else ""
        columns += [f"{on}{metric.title}", f"Δ{unit}", "verdict"]
    labels = list(dict.fromkeys(row.label for group in groups for row in group.rows))
    lines = []
    for label in labels:
        cells = [Cell(label)]
        for group in groups:
            row = next((row for row in group.rows if row.label == label), None)
            cells += _cells(row, metric)
        lines.append(cells)
    return Table(columns, lines)


def _cells(row: StudyRow | None, metric: Metric) -> list[Cell]:
    value = None if row is None else row.values.get(metric.name)
    if row is None or value is None:
        return [Cell("missing", tone="quiet"), Cell("—"), Cell("")]
    shown = summary_cell(value, metric)
    if row.comparison is None:
        return [shown, Cell("—", order=0.0 if row.plain else None), Cell("")]
    quiet = row.comparison.standing not in ("gain", "loss")
    verdict = Cell(row.comparison.verdict, tone="quiet" if quiet else "")
    return [shown, delta_cell(row, metric), verdict]
