"""The page of a study: its questions in their order."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise

from attnlab.report.alerts import alerts, checksums, plan_alerts
from attnlab.report.corruptions import corruptions_section
from attnlab.report.details import details_sections
from attnlab.report.features import stiffness_section, where_section
from attnlab.report.figures import (
    CostPoint,
    Curve,
    cost_figure,
    curves_figure,
    forest_figure,
)
from attnlab.report.gates import gates_section
from attnlab.report.parts import (
    Chip,
    Code,
    Download,
    Figure,
    Folded,
    Legend,
    Notes,
    Page,
    Part,
    Row,
    Section,
    Text,
)
from attnlab.report.pictures import pictures_section
from attnlab.report.read import RunRecord, StudyRecord
from attnlab.report.standing import forest_rows
from attnlab.report.tables import full_table, interval_kind, main_table, to_csv, to_latex
from attnlab.report.verdict import study_chips, study_verdict
from attnlab.stored import Metric
from attnlab.stored.study import PlanRecord
from attnlab.stored.table import Group


def study_page(record: StudyRecord, name: str = "report") -> Page:
    """The page; `name` is what its tables are called."""
    pictures, corruptions = pictures_section(record), corruptions_section(record)
    sections = [
        _help(record),
        *([] if pictures is None else [pictures]),
        *([] if corruptions is None else [corruptions]),
        _cost(record),
        stiffness_section(record),
        *details_sections(record),
        gates_section(record),
        where_section(record),
        _numbers(record, name),
        _alerts(record),
        _reproduce(record),
    ]
    return Page(
        title=record.table.study,
        subtitle=record.study.title,
        verdict=study_verdict(record),
        chips=study_chips(record),
        sections=sections,
        notes=plan_alerts(record),
    )


def _help(record: StudyRecord) -> Section:
    figures = []
    standings = set()
    seeds: set[int] = set()
    for group in record.table.groups:
        rows = forest_rows(group)
        standings |= {row.standing for row in rows}
        seeds |= {len(row.seeds) for row in rows}
        if rows:
            figures.append(Figure(forest_figure(rows, record.metric, record.name_of(group))))
    if not figures:
        return Section(
            "Does it help?",
            "No pair of runs is finished: a module is compared with the plain backbone of the same "
            "seed.",
            [],
        )
    number = f"{min(seeds)}" if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)}"
    hollow = (
        " A hollow dot: zero is outside, but not after Holm's correction for many modules."
        if "before correction only" in standings
        else ""
    )
    lead = "Each small dot is one seed minus the same seed without attention. "
    if standings == {"no interval"}:
        compared = [row.comparison for group in record.table.groups for row in group.rows]
        why = dict.fromkeys(comparison.note for comparison in compared if comparison)
        lead += f"There is no interval and no colour ({'; '.join(why)})."
        return Section("Does it help?", lead, [Row(figures)])
    none = ", or that there is none" if "no interval" in standings else ""
    none += ", or that nothing can be told" if "cannot tell" in standings else ""
    kind = interval_kind(record.table.sequential)
    looked = ", which is right however often one looked" if record.table.sequential else ""
    lower = " Lower is better: a gain lies left of zero." if record.metric.direction else ""
    lead += (
        f"Bar: {record.level} {kind} interval of the paired mean (n = {number}){looked}. Grey "
        f"means the interval contains zero{none}.{hollow}{lower}"
    )
    legend = [("gain", "gain"), ("noise", "within noise"), ("loss", "loss")]
    if hollow:
        legend.append(("only", "before correction only"))
    return Section("Does it help?", lead, [Legend(legend), Row(figures)])


def _cost(record: StudyRecord) -> Section:
    parts: list[Part | Folded] = []
    scatter, curves, metric = [], [], record.metric
    for group in record.table.groups:
        name = record.name_of(group)
        points = [
            CostPoint(row.label, 1000 / row.inference_speed, value.mean, row.fold_error is not None)
            for row in group.rows
            if row.inference_speed and (value := row.values.get(metric.name))
        ]
        if points:
            scatter.append(Figure(cost_figure(points, metric, name)))
        shown = _curves(record, group)
        if shown:
            curves.append(Figure(curves_figure(shown, _drops(record, group), metric, name)))
    text = (
        f"{metric.label} of the plain backbone and of the modules with the largest and the "
        f"smallest Δ on the test images: mean, and range over seeds; dashes where the learning "
        f"rate drops."
    )
    if scatter:
        legend = [
            ("gain", "folds away exactly, then costs what the plain backbone does"),
            ("square", "does not fold"),
        ]
        parts.append(Legend(legend))
    if len(scatter) == len(curves) == 1:  # one data set: both fit side by side
        parts.append(Row([*scatter, replace(curves[0], caption=text)]))
    else:
        parts += [Row(scatter)] if scatter else []
        parts += [Text(text, quiet=True), Row(curves)] if curves else []
    lead = f"Results ({metric.label}) against latency on this machine, and the way there."
    return Section("What does it cost?", lead if parts else "No run is finished.", parts)


def _curves(record: StudyRecord, group: Group) -> list[Curve]:
    plain = group.plain
    compared = [row for row in group.rows if row.comparison is not None]
    ranked = sorted(compared, key=lambda r: r.comparison.difference.mean if r.comparison else 0.0)
    chosen = [plain.label] if plain is not None else []
    chosen += [row.label for row in (ranked[-1:] + ranked[:1] if len(ranked) > 1 else ranked)]
    chosen = chosen or [row.label for row in group.rows[:3]]
    found = [_curve(label, record.of(group, label), record.metric) for label in chosen]
    return [curve for curve in found if curve is not None]


def _curve(label: str, runs: Sequence[RunRecord], metric: Metric) -> Curve | None:
    histories = [
        [metric.shown(record["test"][metric.name]) for record in run.stored.history]
        for run in runs
        if run.stored.history
    ]
    if not histories:
        return None
    columns = list(zip(*histories, strict=False))
    mean = [sum(column) / len(column) for column in columns]
    return Curve(label, mean, [min(c) for c in columns], [max(c) for c in columns])


def _drops(record: StudyRecord, group: Group) -> list[int]:
    """Epochs at which the learning rate falls by more than a third."""
    run = next((r for r in record.finished if r.entry.cell.group == group.name), None)
    rates = [] if run is None else [record["lr"] for record in run.stored.history]
    return [n + 2 for n, (a, b) in enumerate(pairwise(rates)) if b < 0.67 * a]


def _numbers(record: StudyRecord, name: str) -> Section:
    metric, kind = record.metric, interval_kind(record.table.sequential)
    in_points = "points" if metric.difference_unit == "pt" else metric.difference_unit
    unit = f" in {in_points}" if in_points else ""
    lower = f" ({metric.direction})" if metric.direction else ""
    lead = (
        f"Δ {metric.label}{unit}{lower} with its {record.level} {kind} interval; coloured "
        f"where it holds after Holm's correction. The plain backbone's own {metric.label} is "
        f"in its line. Parameters, MACs, ms and what follows are of the first data set. Fold "
        f"error: relative change of the output when folded, in float64."
    )
    parts: list[Part | Folded] = [
        main_table(record),
        Folded("Every number, by data set", [full_table(record)]),
        Download(f"{name}.csv", to_csv(record)),
        Download(f"{name}.tex", to_latex(record)),
    ]
    return Section("All numbers", lead, parts)


def _alerts(record: StudyRecord) -> Section:
    found = alerts(record)
    if not found:
        return Section("Alerts", "", [Notes([Chip("Nothing to report.", "good")])])
    return Section("Alerts", "", [Notes(found)])


def _reproduce(record: StudyRecord) -> Section:
    study = record.study
    changed = [f"{setting}: {before} → {after}" for setting, before, after in study.deviations]
    environment = next((e for run in record.finished if (e := run.stored.environment)), {})
    shown = {key: value for key, value in environment.items() if key not in ("command", "host")}
    sums = [f"{each}  {data}" for data, found in checksums(record).items() for each in found]
    runs = [f"{run.entry.run_id}  {run.state:8} {run.entry}" for run in record.runs]
    definition = json.dumps(study.definition, indent=1, ensure_ascii=False)
    parts: list[Part | Folded] = [
        Code(study.commands, "Commands"),
        Code("\n".join(changed) or "none", f"Deviations from the recipe {study.recipe}"),
        *([Code("\n".join(sums), "Data, SHA-256 of their content")] if sums else []),
        Folded("Environment of the first run", [Code(json.dumps(shown, indent=1))]),
        Folded("The study", [Code(definition)]),
        Folded("Every plan that it had", [Code("\n".join(map(_plan, record.plans)))]),
        Folded("Runs, by the hash of what they are made from", [Code("\n".join(runs))]),
        Folded("BibTeX", [Code(study.bibliography)]),
    ]
    return Section("Reproduce", "", parts)


def _plan(plan: PlanRecord) -> str:
    """`2025-01-31 12:00 UTC  seeds 0 1 2, 12 runs, 0 finished by then`."""
    when = "at an unknown time"  # attnlab 0.1 did not write it down
    if plan.time > 0:
        when = f"{datetime.fromtimestamp(plan.time, UTC):%Y-%m-%d %H:%M} UTC"
    more = ", seeds are added until decided" if plan.until_decided else ""
    seeds = " ".join(map(str, plan.seeds))
    return f"{when}  seeds {seeds}, {len(plan.runs)} runs, {len(plan.seen)} finished by then{more}"
