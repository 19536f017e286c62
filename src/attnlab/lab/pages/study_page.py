"""The page of a study: its questions in their order."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime

from attnlab.instruments.classes.section import classes_section
from attnlab.instruments.corruptions.section import corruptions_section
from attnlab.instruments.details.section import details_sections
from attnlab.instruments.pictures.section import pictures_section
from attnlab.instruments.stiffness.section import stiffness_section, where_section
from attnlab.instruments.stripe.section import gates_section
from attnlab.lab.pages.alerts import alerts, checksums, plan_alerts
from attnlab.lab.pages.cost import cost_section
from attnlab.lab.pages.doubts import doubts
from attnlab.lab.pages.help import findings, help_section
from attnlab.lab.pages.nearness import nearness_sections
from attnlab.lab.pages.verdict import study_chips, study_verdict
from attnlab.page.glossary import words
from attnlab.page.parts import Cell, Chip, Code, Download, Folded, Notes, Page, Part, Section, Table
from attnlab.results.epoch import Budget
from attnlab.results.record import RunRecord, StudyRecord
from attnlab.results.study import PlanRecord, StoredStudy
from attnlab.results.study_cells import interval_kind

_ORDER = ("begun", "damaged", "failed", "waiting", "done")


def is_open(record: StudyRecord) -> bool:
    """Return whether runs are still to be done."""
    return len(record.finished) < len(record.runs)


def progress_section(record: StudyRecord) -> list[Section]:
    """One section while runs are missing; none of a study that is finished."""
    if not is_open(record):
        return []
    count = Counter(run.state for run in record.runs)
    states = ", ".join(f"{count[state]} {state}" for state in _ORDER if count[state])
    called = record.study.called
    to_do = (
        f"`{called.command('run')}` goes on where it stopped; "
        f"`{called.command('status', '--watch')}` shows it on a terminal, and "
        f"`{called.report(record.table.study, '--serve')}` keeps this page up to date."
    )
    found = f"{len(record.runs)} runs: {states}."
    return [Section("How far is it?", "", _progress_tables(record), found, to_do)]


def _progress_tables(record: StudyRecord) -> list[Part | Folded]:
    """Runs that say something in sight; those that wait, which may be hundreds, when asked for."""
    units = {run.stored.config.recipe.budget.unit for run in record.runs if run.stored.history}
    unit = units.pop() if len(units) == 1 else "epoch"
    columns = ["run", "state", unit, "training loss", record.metric.title]
    rows: dict[bool, list[list[Cell]]] = {False: [], True: []}
    for run in sorted(record.runs, key=lambda run: _ORDER.index(run.state)):
        rows[run.state == "waiting"].append(_row(run, record.metric.name, record))
    parts: list[Part | Folded] = []
    if rows[False]:
        parts.append(Table(columns, rows[False], names=2))
    if waiting := rows[True]:
        parts.append(
            Folded(f"Waiting: {len(waiting)}", [Table(columns[:1], [r[:1] for r in waiting])])
        )
    return parts


def _done(budget: Budget, records: int) -> str:
    """`3 / 12`: epochs, or steps."""
    return f"{budget.after(records)}" + ("" if budget.whole is None else f" / {budget.whole}")


def _row(run: RunRecord, name: str, record: StudyRecord) -> list[Cell]:
    history, budget = run.stored.history, run.stored.config.recipe.budget
    label = Cell(f"{record.label_of(run)}")
    if not history:
        return [label, Cell(run.state), Cell("—"), Cell("—"), Cell("—")]
    last = history[-1]
    value, loss = last.test.get(name), last.train_loss
    return [
        label,
        Cell(run.state),
        Cell(_done(budget, len(history)), order=len(history)),
        Cell("—") if loss is None else Cell(f"{loss:.3f}", order=loss),
        Cell("—") if value is None else Cell(record.metric.text(value), order=value),
    ]


def study_page(record: StudyRecord, name: str = "report") -> Page:
    """The page; `name` is what its tables are called."""
    pictures, corruptions = pictures_section(record), corruptions_section(record)
    doubtful = doubts(record)
    sections = [
        *progress_section(record),
        help_section(record, bool(doubtful)),
        *([] if pictures is None else [pictures]),
        *([] if corruptions is None else [corruptions]),
        cost_section(record, bool(doubtful)),
        stiffness_section(record),
        *nearness_sections(record),
        *details_sections(record),
        gates_section(record),
        where_section(record),
        *classes_section(record),
        _numbers(record, name),
        _alerts(record),
        _reproduce(record),
    ]
    return Page(
        # The question is the headline; the name of the file is not.
        title=record.study.title or record.table.study,
        subtitle=_subtitle(record),
        verdict=study_verdict(record),
        findings=findings(record),
        chips=study_chips(record),
        sections=sections,
        notes=[*plan_alerts(record), *doubtful],
        running=is_open(record),
    )


def _numbers(record: StudyRecord, name: str) -> Section:
    metric, kind = record.metric, interval_kind(record.table.sequential)
    in_points = "points" if metric.difference_unit == "pt" else metric.difference_unit
    unit = f" in {in_points}" if in_points else ""
    lower = f" ({metric.direction})" if metric.direction else ""
    lead = (
        f"{metric.label} is the last {record.table.unit}, mean ± standard deviation over seeds. "
        f"Δ{unit}{lower} with its {record.level} {kind} interval; coloured where it holds after "
        f"Holm's correction. Parameters, MACs, ms and what follows are of the first data set. Fold "
        f"error: relative change of the output when folded, in float64."
    )
    parts: list[Part | Folded] = [
        record.columns.main(),
        Folded("Every number, by data set", [record.columns.full()]),
        Download(f"{name}.csv", record.columns.values().to_csv()),
        Download(f"{name}.tex", record.columns.for_latex().to_latex()),
        words("Δ", "TNS", "fold"),
    ]
    to_do = "Take them into your paper or notebook: the CSV has every digit, the LaTeX a table."
    return Section("All numbers", lead, parts, "Everything that was measured.", to_do)


def _subtitle(record: StudyRecord) -> str:
    backbones = " and ".join(dict.fromkeys(group.backbone for group in record.table.groups))
    data = " and ".join(dict.fromkeys(group.data for group in record.table.groups))
    return f"{backbones} on {data} · study {record.table.study}"


def _alerts(record: StudyRecord) -> Section:
    found = alerts(record)
    if not found:
        return Section("Alerts", "", [Notes([Chip("Nothing to report.", "good")])])
    return Section("Alerts", "", [Notes(found)])


def _reproduce(record: StudyRecord) -> Section:
    study = record.study
    changed = [f"{setting}: {before} → {after}" for setting, before, after in study.deviations]
    environment = next((e for run in record.finished if (e := run.stored.environment)), None)
    shown = {} if environment is None else environment.shown()
    sums = [f"{each}  {data}" for data, found in checksums(record).items() for each in found]
    runs = [f"{run.entry.run_id}  {run.state:8} {run.entry}" for run in record.runs]
    definition = json.dumps(study.definition, indent=1, ensure_ascii=False)
    parts: list[Part | Folded] = [
        Code(_commands(study), "Commands, in the folder in which the study was run"),
        Code("\n".join(changed) or "none", f"Deviations from the recipe {study.recipe}"),
        *([Code("\n".join(sums), "Data, by their content")] if sums else []),
        Folded("Environment of the first run", [Code(json.dumps(shown, indent=1))]),
        Folded("The study", [Code(definition)]),
        Folded("Every plan that it had", [Code("\n".join(map(_plan, record.plans)))]),
        Folded("Runs, by the hash of what they are made from", [Code("\n".join(runs))]),
        Folded("BibTeX", [Code(study.bibliography)]),
    ]
    return Section("Reproduce", "", parts)


def _commands(study: StoredStudy) -> str:
    report = study.called.report(study.name, "-o", "report.html")
    return f"{study.called.command('run')}\n{report}"


def _plan(plan: PlanRecord) -> str:
    """`2025-01-31 12:00 UTC  seeds 0 1 2, 12 runs, 0 finished by then`."""
    when = f"{datetime.fromtimestamp(plan.time, UTC):%Y-%m-%d %H:%M} UTC"
    more = ", seeds are added until decided" if plan.until_decided else ""
    seeds = " ".join(map(str, plan.seeds))
    return f"{when}  seeds {seeds}, {len(plan.runs)} runs, {len(plan.seen)} finished by then{more}"
