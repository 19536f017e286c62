"""What the finished runs of a study say: one row per cell, compared with the plain backbone."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

from attnlab._errors import InputError
from attnlab._words import counted
from attnlab.instruments.stiffness import StiffnessResult
from attnlab.lab.statistics.equivalent import equivalence, judge
from attnlab.lab.statistics.paired import (
    LEVEL,
    Direction,
    judge_differences,
    paired_difference,
    summarize,
)
from attnlab.lab.study.beside import beside, by_corruption
from attnlab.lab.study.definition import EquivalenceConfig, Paper
from attnlab.lab.study.history import History, stale_reasons, study_history
from attnlab.lab.study.looking import row_key, share_of
from attnlab.lab.study.speed import group_speed
from attnlab.lab.study.store import Store
from attnlab.results import Metric, RunResult, StoredRun
from attnlab.results.speed import GroupSpeed
from attnlab.results.study import RunEntry, StoredStudy, StudyCell
from attnlab.results.table import (
    Comparison,
    Equivalence,
    Group,
    PairedDifference,
    PaperFigure,
    StudyRow,
    StudyTable,
    Summary,
    Verdict,
)
from attnlab.surgery.folding import FoldReceipt

T = TypeVar("T")


@dataclass(frozen=True)
class _Finished:
    """A trained run with what the table takes of it."""

    entry: RunEntry
    run: StoredRun

    @property
    def result(self) -> RunResult:
        return self.run.result

    @cached_property
    def fold(self) -> FoldReceipt | None:
        """What folding its network did; None if its gates do not fold."""
        return self.run.measured_result(FoldReceipt)

    @cached_property
    def tns(self) -> float | None:
        """Its total stiffness; None if that was not measured or has no value."""
        found = self.run.measured_result(StiffnessResult)
        return None if found is None or math.isnan(found.tns) else found.tns


Finished = dict[tuple[StudyCell, int], _Finished]
"""By the place in the table and the seed."""


def study_table(store: Store, study: StoredStudy, *, include_stale: bool = False) -> StudyTable:
    """The table of what is finished.

    `include_stale` fills places with runs of earlier plans, made from other code, data or settings;
    then nothing is said to be better. Those whose figures mean something else are left out.
    """
    history = study_history(store, study.name, study.runs)
    finished: Finished = {
        (entry.cell, entry.seed): _Finished(entry, store.run(entry))
        for entry in study.runs
        if store.run(entry).is_trained
    }
    planned = len(finished)
    others = _add_stale(finished, store, study, history) if include_stale else set()
    mixed = len(finished) > planned
    metrics = _metrics(study, list(finished.values()))
    why = _cannot_tell(history, mixed)
    names = dict.fromkeys(entry.cell.group for entry in study.runs)
    groups = tuple(_group(study, name, metrics[0], finished, history, store, why) for name in names)
    paper = _paper(study)
    return StudyTable(
        study=study.name,
        title=study.title or study.name,
        level=LEVEL,
        metrics=metrics,
        groups=groups,
        paper_source="" if paper is None else paper.source,
        paper_note="" if paper is None else paper.note,
        notes=(
            *_notes(study, finished, mixed, sorted(others)),
            *_damage(store, study, history),
        ),
        changes=history.changes,
        mixed=tuple(mixed_versions(list(names), finished.values())),
        sequential=history.sequential or any(each.unknown for each in history.looks.values()),
        planned=len(study.runs),
        finished=tuple(one.entry.folder for one in finished.values()),
    )


def _add_stale(finished: Finished, store: Store, study: StoredStudy, history: History) -> set[str]:
    """Fill free places with stale runs; the labels of the results that cannot stand beside the
    others, whose runs are left out."""
    others = set()
    for entry in history.stale:
        if (entry.cell, entry.seed) not in finished:
            stale = _Finished(entry, store.run(entry))
            if stale.result.metric.name == study.metrics[0].name:
                finished[entry.cell, entry.seed] = stale
            else:
                others.add(stale.result.metric.label)
    return others


def _metrics(study: StoredStudy, finished: Sequence[_Finished]) -> tuple[Metric, ...]:
    """Those of the results, which agree: a study has one task."""
    if finished:
        return finished[0].result.metrics
    if not study.metrics:
        raise InputError(
            f"{study.damage} No run of it is finished, so there is nothing to show without it."
        )
    return study.metrics


def _cannot_tell(history: History, mixed: bool) -> str:
    if history.damage:
        return "the plans of the study are not all known, so neither is what was added after a look"
    if mixed:
        return "runs that were made from different code, data or settings are mixed"
    if history.dropped_seeds:
        return "seeds were removed after their results had been seen"
    return ""


def _group(
    study: StoredStudy,
    name: str,
    metric: Metric,
    finished: Finished,
    history: History,
    store: Store,
    why: str,
) -> Group:
    entries = [entry for entry in study.runs if entry.cell.group == name]
    cells = list(dict.fromkeys(entry.cell for entry in entries))
    comparisons, by_best = (
        _comparisons(cells, metric, finished, history, store, why, read)
        for read in (_last_value, _best_value)
    )
    looks = history.looks[name]
    sequential = history.sequential or bool(looks.added or looks.unknown)
    equal = _equivalences(study, cells, metric, finished, sequential, why)
    figures = _paper_figures(study, name)
    timed, why_not_timed = group_speed(store, study, name)
    rows = []
    for cell in cells:
        own = [entry for entry in entries if entry.cell == cell]
        there = [finished[cell, e.seed] for e in own if (cell, e.seed) in finished]
        stale = [entry for entry in history.stale if entry.cell == cell]
        rows.append(
            _row(
                cell,
                sorted(there, key=lambda one: one.entry.seed),
                tuple(sorted(e.seed for e in own if (cell, e.seed) not in finished)),
                tuple(stale_reasons(stale, own)),
                comparisons.get(cell.row),
                by_best[cell.row].verdict if cell.row in by_best else None,
                {m: by_row[cell.row] for m, by_row in figures.items() if cell.row in by_row},
                metric,
                _plain_runs(cells, finished),
                why,
                timed,
                equal.get(cell.row),
            )
        )
    return Group(name, cells[0].data, cells[0].backbone, tuple(rows), timed, why_not_timed)


def _paper(study: StoredStudy) -> Paper | None:
    """What a paper prints; None if the study has none."""
    found = study.definition.get("paper")
    return Paper(**found) if found else None


def _paper_figures(study: StoredStudy, group: str) -> dict[str, dict[str, PaperFigure]]:
    """By metric and row."""
    paper = _paper(study)
    printed = {} if paper is None else paper.figures
    return {metric: groups.get(group, {}) for metric, groups in printed.items()}


@dataclass(frozen=True)
class _Family:
    """The differences of a group's rows to the plain backbone, by `row_key`."""

    rows: dict[str, PairedDifference]
    labels: dict[str, str]
    gone: dict[str, PairedDifference]
    """Of rows that were planned before and are not any more."""
    elsewhere: dict[str, PairedDifference]
    """Of rows that other studies compared with the same runs."""
    better: Direction

    def judged(
        self, batches: dict[str, int], sequential: bool, also: dict[str, PairedDifference]
    ) -> dict[str, Comparison]:
        """The verdicts, if rows were added as `batches` say. Those of each batch are corrected
        among themselves, at their share of the error rate."""
        found: dict[str, Comparison] = {}
        for batch in sorted({batches.get(key, 0) for key in self.rows}):
            own, others = (
                {key: each for key, each in of.items() if batches.get(key, 0) == batch}
                for of in (self.rows, also)
            )
            found |= judge_differences(
                own,
                sequential=sequential or batch > 0,
                better=self.better,
                also=others,
                share=share_of(batch),
            )
        return found


def _comparisons(
    cells: Sequence[StudyCell],
    metric: Metric,
    finished: Finished,
    history: History,
    store: Store,
    why: str,
    read: Callable[[RunResult], float],
) -> dict[str, Comparison]:
    """The verdicts on the rows of a group. Where rows had been seen before the study was planned,
    there is one only if it is the same whatever had happened before."""
    looks = history.looks[cells[0].group]
    family = _family(cells, metric, finished, history, store, why, read)
    found = family.judged(looks.batches, history.sequential, family.gone)
    if looks.unknown:
        also = {**family.gone, **family.elsewhere}
        strictly = family.judged(looks.strictly, True, also)
        found = {key: _agreed(found[key], strictly[key]) for key in found}
    return {family.labels[key]: comparison for key, comparison in found.items()}


def _family(
    cells: Sequence[StudyCell],
    metric: Metric,
    finished: Finished,
    history: History,
    store: Store,
    why: str,
    read: Callable[[RunResult], float],
) -> _Family:
    values: dict[str, dict[int, float]] = {}
    labels, plain = {}, {}
    for (cell, seed), one in finished.items():
        if cell not in cells:
            continue
        value = metric.shown(read(one.result))
        if cell.plain:
            plain[seed] = value
        else:
            key = row_key(one.entry)
            labels[key] = cell.row
            values.setdefault(key, {})[seed] = value

    def of(runs: Iterable[RunEntry]) -> dict[str, dict[int, float]]:
        found: dict[str, dict[int, float]] = {}
        for entry in runs:
            value = metric.shown(read(store.run(entry).result))
            found.setdefault(row_key(entry), {})[entry.seed] = value
        return found

    def differences(by_row: dict[str, dict[int, float]]) -> dict[str, PairedDifference]:
        return {
            key: paired_difference(own, plain, cannot_tell=why)
            for key, own in by_row.items()
            if own.keys() & plain.keys()
        }

    group = cells[0].group
    gone = (entry for runs in history.looks[group].gone.values() for entry in runs)
    elsewhere = (entry for entry in history.elsewhere[group] if row_key(entry) not in values)
    return _Family(
        rows=differences(values),
        labels=labels,
        gone=differences(of(gone)),
        elsewhere=differences(of(elsewhere)),
        better=metric.better,
    )


def _agreed(mildly: Comparison, strictly: Comparison) -> Comparison:
    """The verdict that holds both if the study was planned beforehand and if it was not."""
    if mildly.verdict == strictly.verdict:
        return strictly
    difference = replace(strictly.difference, cannot_tell=_SEEN)
    return Comparison(difference, None, "cannot tell", strictly.sequential)


_SEEN = (
    "runs had been seen before the first plan of this study, and the verdict depends on whether "
    "seeds or rows were added after a look, which is not known"
)


def _equivalences(
    study: StoredStudy,
    cells: Sequence[StudyCell],
    metric: Metric,
    finished: Finished,
    sequential: bool,
    why: str,
) -> dict[str, Equivalence]:
    """Of the rows with the one that the study names; the plain backbone is among them, since a
    margin within which even that is as good shows nothing of attention."""
    found = study.definition.get("equivalence")
    if not found:
        return {}
    asked = EquivalenceConfig(**found)
    values: dict[str, dict[int, float]] = {cell.row: {} for cell in cells}
    for (cell, seed), one in finished.items():
        if cell in cells:
            values[cell.row][seed] = metric.shown(one.result.value)
    other = values.get(asked.to, {})
    family = {
        row: equivalence(
            own,
            other,
            asked.margin,
            to=asked.to,
            sequential=sequential,
            cannot_tell=why,
        )
        for row, own in values.items()
        if row != asked.to and own.keys() & other.keys()
    }
    return judge(family)


def _last_value(result: RunResult) -> float:
    return result.value


def _best_value(result: RunResult) -> float:
    return result.best_value


def _row(
    cell: StudyCell,
    runs: Sequence[_Finished],
    missing: tuple[int, ...],
    stale: tuple[str, ...],
    comparison: Comparison | None,
    best_verdict: Verdict | None,
    paper: dict[str, PaperFigure],
    metric: Metric,
    plain: dict[int, StoredRun],
    why: str,
    timed: GroupSpeed | None,
    equal: Equivalence | None,
) -> StudyRow:
    seeds = tuple(one.entry.seed for one in runs)
    if not runs:
        return StudyRow(cell.row, cell.plain, seeds, missing, stale, paper=paper)
    results = [one.result for one in runs]
    by_seed = {one.entry.seed: metric.shown(one.result.value) for one in runs}
    best = {one.entry.seed: metric.shown(one.result.best_value) for one in runs}
    row = StudyRow(
        label=cell.row,
        plain=cell.plain,
        seeds=seeds,
        missing=missing,
        stale=stale,
        values=_values(results),
        by_seed=by_seed,
        best=summarize(list(best.values())),
        best_by_seed=best,
        best_verdict=best_verdict,
        comparison=comparison,
        parameters=results[0].parameters,
        macs=results[0].macs,
        train_speed=statistics.median(result.train_images_per_second for result in results),
        paper=paper,
        equivalence=equal,
    )
    others = None if cell.plain else plain
    return _with_measured(row, runs, metric, timed, others, why)


def _values(results: Sequence[RunResult]) -> dict[str, Summary]:
    """Every metric over seeds, in its unit; those that have no value are left out."""
    return {
        each.name: summarize([each.shown(value) for value in values])
        for each in results[0].metrics
        if (values := [v for r in results if (v := r.values.get(each.name)) is not None])
    }


def _with_measured(
    row: StudyRow,
    runs: Sequence[_Finished],
    metric: Metric,
    timed: GroupSpeed | None,
    plain: dict[int, StoredRun] | None,
    why: str,
) -> StudyRow:
    """The row with what was measured of its networks: time, stiffness, fold, corruptions."""
    speed = None if timed is None else timed.rows.get(row.label)
    folded = _of(runs, list, lambda run: run.fold and run.fold.values.get(metric.name))
    return replace(
        row,
        inference_speed=None if speed is None else 1000 / speed.milliseconds,
        speed=speed,
        folded_speed=None if timed is None else timed.folded.get(row.label),
        tns=_of(runs, summarize, lambda run: run.tns),
        fold_error=_of(runs, max, lambda run: run.fold and run.fold.float64_change),
        folded_parameters=_of(runs, max, lambda run: run.fold and run.fold.parameters_after),
        folded=None if folded is None else summarize([metric.shown(value) for value in folded]),
        beside=beside({one.entry.seed: one.run for one in runs}, plain, why),
        by_corruption=by_corruption([one.run for one in runs]),
    )


def _plain_runs(cells: Sequence[StudyCell], finished: Finished) -> dict[int, StoredRun]:
    return {seed: one.run for (cell, seed), one in finished.items() if cell in cells and cell.plain}


def _of(
    runs: Sequence[_Finished],
    reduce: Callable[[list[Any]], T],
    read: Callable[[_Finished], Any],
) -> T | None:
    values = [value for run in runs if (value := read(run)) is not None]
    return reduce(values) if values else None


def _notes(
    study: StoredStudy,
    finished: Finished,
    mixed: bool,
    others: Sequence[str],
) -> list[str]:
    notes = []
    if others:
        notes.append(f"stale runs whose result is {', '.join(others)} never stand in this table")
    if mixed:
        notes.append("stale runs are included: rows mix code, data or settings")
    notes += _data_notes(finished)
    notes += _uneven(study, list(finished.values()))
    if len(finished) < len(study.runs):
        notes.append(f"{len(finished)} of {len(study.runs)} runs are finished")
    if len(study.seeds) == 1:
        notes.append("one seed: no interval, so nothing can be said to be better")
    if not study.has_plain:
        notes.append("the study has no plain backbone ('none') to compare with")
    if any(one.result.macs is None for one in finished.values()):
        notes.append("no MACs: how much is computed depends on what is found in an image")
    return notes


_PACKAGES = ("torch", "attnlab")
"""Whose version may change a result; those of others are in environment.json."""


def mixed_versions(groups: Sequence[str], finished: Iterable[_Finished]) -> Iterator[str]:
    """The versions that differ within a group, whose rows are compared with each other. A run that
    went on under another version was made by both."""
    runs = list(finished)
    for group in groups:
        starts = [each.run.starts for each in runs if each.entry.cell.group == group]
        for package in _PACKAGES:
            count = Counter(
                version
                for own in starts
                for version in {start.packages.get(package, "unknown") for start in own}
            )
            if len(count) > 1:
                found = (f"{each} ({counted(count[each], 'run')})" for each in sorted(count))
                yield (
                    f"runs of {group} that are compared were made with {package} "
                    f"{' and '.join(found)}: a difference may be the versions'"
                )


def _data_notes(finished: Finished) -> list[str]:
    """What was left out of the data or is missing in them, each once."""
    told: dict[str, None] = {}
    for (cell, _), one in finished.items():
        facts = one.run.data
        told |= {} if facts is None else dict.fromkeys(f"{cell.data}: {n}" for n in facts.notes)
    return [note.rstrip(".") for note in told]


def _damage(store: Store, study: StoredStudy, history: History) -> list[str]:
    """Files that cannot be read, each with what to do."""
    notes = [text for text in (study.damage, history.damage) if text]
    for entry in study.runs:
        notes += [f"{entry}: {problem}" for problem in store.run(entry).damage]
    return notes


def _uneven(study: StoredStudy, finished: Sequence[_Finished]) -> list[str]:
    """Measurements that were not made alike for all runs."""
    notes = []
    for name in ("stiffness", "stripe", "corruptions"):
        found = [measured for one in finished if (measured := one.run.measured(name)) is not None]
        images = sorted({each.settings["images"] for each in found if "images" in each.settings})
        if len(images) > 1:
            shown = " and ".join(map(str, images))
            command = f"`{study.called.measure(study.name, name)}`"
            notes.append(f"{name} was measured on {shown} images: {command} makes it even")
    return notes
