"""The page of a study: its questions in their order."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from attnlab.report.alerts import alerts
from attnlab.report.bibliography import bibliography
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
from attnlab.report.read import RunRecord, StudyRecord
from attnlab.report.standing import forest_rows, plain_row
from attnlab.report.tables import full_table, main_table, to_csv, to_latex
from attnlab.report.verdict import deviations, study_chips, study_verdict
from attnlab.study.definition import list_studies
from attnlab.study.table import Group


def study_page(record: StudyRecord, name: str = "report") -> Page:
    """The page; `name` is what its tables are called."""
    sections = [
        _help(record),
        _cost(record),
        stiffness_section(record),
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
    )


def _help(record: StudyRecord) -> Section:
    figures = []
    standings = set()
    seeds: set[int] = set()
    for group in record.table.groups:
        rows = forest_rows(record, group)
        standings |= {row.standing for row in rows}
        seeds |= {len(row.seeds) for row in rows}
        if rows:
            figures.append(Figure(forest_figure(rows, record.name_of(group))))
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
        lead += (
            "There is no interval and no colour: one seed, or the same difference for each, says "
            "nothing about noise."
        )
        return Section("Does it help?", lead, [Row(figures)])
    none = ", or that there is none" if "no interval" in standings else ""
    lead += (
        f"Bar: 95 % Student-t interval of the paired mean (n = {number}). Grey means the interval "
        f"contains zero{none}.{hollow}"
    )
    legend = [("gain", "gain"), ("noise", "within noise"), ("loss", "loss")]
    if hollow:
        legend.append(("only", "before correction only"))
    return Section("Does it help?", lead, [Legend(legend), Row(figures)])


def _cost(record: StudyRecord) -> Section:
    parts: list[Part | Folded] = []
    scatter, curves = [], []
    for group in record.table.groups:
        name = record.name_of(group)
        points = [
            CostPoint(
                row.label, 1000 / row.inference_speed, row.top1.mean, row.fold_error is not None
            )
            for row in group.rows
            if row.inference_speed and row.top1
        ]
        if points:
            scatter.append(Figure(cost_figure(points, name)))
        shown = _curves(record, group)
        if shown:
            curves.append(Figure(curves_figure(shown, _drops(record, group), name)))
    text = (
        "Test accuracy of the plain backbone and of the modules with the largest and the smallest "
        "Δ: mean, and range over seeds; dashes where the learning rate drops."
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
    lead = "Accuracy against latency on this machine, and the way there."
    return Section("What does it cost?", lead if parts else "No run is finished.", parts)


def _curves(record: StudyRecord, group: Group) -> list[Curve]:
    plain = plain_row(group)
    compared = [row for row in group.rows if row.comparison is not None]
    ranked = sorted(compared, key=lambda r: r.comparison.difference.mean if r.comparison else 0.0)
    chosen = [plain.label] if plain is not None else []
    chosen += [row.label for row in (ranked[-1:] + ranked[:1] if len(ranked) > 1 else ranked)]
    found = [_curve(label, record.of(group, label)) for label in chosen or _first(group)]
    return [curve for curve in found if curve is not None]


def _first(group: Group) -> list[str]:
    return [row.label for row in group.rows[:3]]


def _curve(label: str, runs: Sequence[RunRecord]) -> Curve | None:
    histories = [[100 * record["top1"] for record in run.history] for run in runs if run.history]
    if not histories:
        return None
    columns = list(zip(*histories, strict=False))
    mean = [sum(column) / len(column) for column in columns]
    return Curve(label, mean, [min(c) for c in columns], [max(c) for c in columns])


def _drops(record: StudyRecord, group: Group) -> list[int]:
    """Epochs at which the learning rate falls by more than a third."""
    run = next((r for r in record.finished if r.planned.cell.group == group.name), None)
    if run is None:
        return []
    rates = [record["lr"] for record in run.history]
    return [n + 2 for n, (a, b) in enumerate(pairwise(rates)) if b < 0.67 * a]


def _numbers(record: StudyRecord, name: str) -> Section:
    lead = (
        "Δ top-1 in points with its 95 % interval; coloured where it holds after Holm's "
        "correction. The plain backbone's own accuracy is in its line. Parameters, MACs, ms and "
        "what follows are of the first data set. Fold error: relative change of "
        "the output when folded, in float64."
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
    commands = reproduce_commands(record.table.study)
    changed = [f"{s}: {before} → {after}" for s, before, after in deviations(record)]
    checksums = sorted({(r.data["name"], r.data["checksum"]) for r in record.runs if r.data})
    environment = next((run.environment for run in record.finished if run.environment), {})
    shown = {key: value for key, value in environment.items() if key not in ("command", "host")}
    gates = dict.fromkeys(run.planned.config.attention for run in record.runs)
    stiff = any(run.result and run.result.nsi for run in record.finished)
    parts: list[Part | Folded] = [
        Code(commands, "Commands"),
        Code(
            "\n".join(changed) or "none",
            f"Deviations from the recipe {record.study.recipe.get('name', '')}",
        ),
    ]
    if checksums:
        text = "\n".join(f"{checksum}  {data}" for data, checksum in checksums)
        parts.append(Code(text, "Data, SHA-256 of pixels and labels"))
    runs = "\n".join(f"{run.planned.run_id}  {run.state:8} {run.planned}" for run in record.runs)
    definition = record.study.model_dump(mode="json", exclude_defaults=True)
    parts += [
        Folded("Environment of the first run", [Code(json.dumps(shown, indent=1))]),
        Folded("The study", [Code(json.dumps(definition, indent=1, ensure_ascii=False))]),
        Folded("Runs, by the hash of their settings", [Code(runs)]),
        Folded("BibTeX", [Code(bibliography(gates, stiffness=stiff))]),
    ]
    return Section("Reproduce", "", parts)


def reproduce_commands(name: str) -> str:
    """The study by its name where attnlab has it, else by the file that it was."""
    known = list_studies()
    whole = name.removesuffix("-small")
    if name in known:
        given = name
    elif whole != name and whole in known:
        given = f"{whole} --small"
    else:
        given = f"{name}.toml"
    return f"attnlab study run {given}\nattnlab report runs --study {name} -o report.html"


def write_tables(record: StudyRecord, page: Path) -> list[Path]:
    """CSV and LaTeX beside the page."""
    from attnlab._files import write_whole

    return [
        write_whole(page.with_suffix(".csv"), to_csv(record)),
        write_whole(page.with_suffix(".tex"), to_latex(record)),
    ]
