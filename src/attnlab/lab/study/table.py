"""What the finished runs of a study say: one row per cell, compared with the plain backbone."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from attnlab._errors import InputError
from attnlab._words import counted, listed
from attnlab.lab.statistics.paired import (
    LEVEL,
    summarize,
)
from attnlab.lab.study.beside import beside, by_corruption
from attnlab.lab.study.claims import Paper
from attnlab.lab.study.finished import Finished, FinishedRun
from attnlab.lab.study.history import History, stale_reasons, study_history
from attnlab.lab.study.judging import RowJudge
from attnlab.lab.study.speed import group_speed
from attnlab.lab.study.store import Store
from attnlab.results import Metric, RunResult, StoredRun
from attnlab.results.speed import GroupSpeed
from attnlab.results.study import RunEntry, StoredStudy, StudyCell
from attnlab.results.table import (
    Group,
    PaperFigure,
    StudyRow,
    StudyTable,
    Summary,
)

T = TypeVar("T")
_ALIKE = ("stiffness", "stripe", "corruptions")
"""Measurements that should be made on as many images in all runs."""


def study_table(store: Store, study: StoredStudy, *, include_stale: bool = False) -> StudyTable:
    """The table of what is finished.

    `include_stale` fills places with runs of earlier plans, made from other code, data or settings;
    then nothing is said to be better. Those whose figures mean something else are left out.
    """
    return GrowingTable(store, study, include_stale=include_stale).table()


class GrowingTable:
    """The table of a study, to which runs are added one by one as they end: only what these change
    is computed. The plans that the study had, and the times of its networks, are as they were when
    it was begun."""

    def __init__(self, store: Store, study: StoredStudy, *, include_stale: bool = False) -> None:
        self._store, self._study = store, study
        self._history = study_history(store, study.name, study.runs, study.claim)
        self._entries = {entry.folder: entry for entry in study.runs}
        self._finished: Finished = {}
        self._folders: list[str] = []
        self._damage: dict[str, tuple[str, ...]] = {}
        self._rows: dict[StudyCell, tuple[tuple[int, int], StudyRow]] = {}
        self._images: dict[str, set[int]] = {name: set() for name in _ALIKE}
        self._versions: Versions = {}
        self._told = dict.fromkeys(_other_recipes(study.runs))
        self._units: set[str] = set()
        self._without_macs = False
        for entry in study.runs:
            self._look(entry)
        planned = len(self._folders)
        self._others = self._add_stale() if include_stale else set()
        self._mixed = len(self._folders) > planned
        self._why = _cannot_tell(self._history, self._mixed)
        names = dict.fromkeys(entry.cell.group for entry in study.runs)
        self._timed = {name: group_speed(store, study, name) for name in names}

    def add(self, folder: str) -> None:
        """Take in a run that has ended."""
        if folder not in self._folders:
            self._look(self._entries[folder])

    def _look(self, entry: RunEntry) -> None:
        run = self._store.run(entry)
        self._damage[entry.folder] = tuple(f"{entry}: {problem}" for problem in run.damage)
        if run.is_trained:
            self._put(FinishedRun(entry, run))

    def _put(self, one: FinishedRun) -> None:
        self._finished.setdefault(one.entry.cell, {})[one.entry.seed] = one
        self._folders.append(one.entry.folder)
        self._without_macs |= one.result.macs is None
        self._units.add(one.run.config.recipe.budget.unit)
        _count_versions(self._versions, one)
        self._told |= dict.fromkeys(_data_notes(one))
        for name in _ALIKE:
            measured = one.run.noted.get(name)
            if measured is not None and "images" in measured.settings:
                self._images[name].add(measured.settings["images"])

    def _add_stale(self) -> set[str]:
        """Fill free places with stale runs; the labels of the results that cannot stand beside the
        others, whose runs are left out."""
        others = set()
        for entry in self._history.stale:
            if entry.seed not in self._finished.get(entry.cell, {}):
                stale = FinishedRun(entry, self._store.run(entry))
                if stale.result.metric.name == self._study.metrics[0].name:
                    self._put(stale)
                else:
                    others.add(stale.result.metric.label)
        return others

    def table(self) -> StudyTable:
        """The table of what is finished by now."""
        study, history, paper = self._study, self._history, _paper(self._study)
        metrics = _metrics(study, self._finished)
        groups = tuple(self._group(name, metrics[0]) for name in self._timed)
        damage = [text for text in (study.damage, history.damage) if text]
        return StudyTable(
            study=study.name,
            title=study.title or study.name,
            level=LEVEL,
            metrics=metrics,
            groups=groups,
            paper_source="" if paper is None else paper.source,
            paper_note="" if paper is None else paper.note,
            notes=(
                *self._notes(),
                *damage,
                *(text for entry in study.runs for text in self._damage[entry.folder]),
            ),
            changes=history.changes,
            mixed=tuple(mixed_versions(list(self._timed), self._versions)),
            sequential=history.sequential or any(each.unknown for each in history.looks.values()),
            planned=len(study.runs),
            unit="test" if len(self._units) > 1 else next(iter(self._units), "epoch"),
            finished=tuple(self._folders),
        )

    def _group(self, name: str, metric: Metric) -> Group:
        study, history = self._study, self._history
        entries = [entry for entry in study.runs if entry.cell.group == name]
        cells = list(dict.fromkeys(entry.cell for entry in entries))
        judge = RowJudge(cells, metric, self._finished, history, self._store, self._why)
        comparisons = judge.comparisons(lambda result: result.value)
        by_best = judge.comparisons(lambda result: result.best_value)
        equal = judge.equivalences(study)
        own: dict[StudyCell, list[RunEntry]] = {cell: [] for cell in cells}
        for entry in entries:
            own[entry.cell].append(entry)
        rows = []
        for cell in cells:
            there = self._finished.get(cell, {})
            rows.append(
                replace(
                    self._row(cell, cells, own[cell], metric),
                    missing=tuple(sorted(e.seed for e in own[cell] if e.seed not in there)),
                    comparison=comparisons.get(cell.row),
                    best_verdict=by_best[cell.row].verdict if cell.row in by_best else None,
                    equivalence=equal.get(cell.row) if there else None,
                )
            )
        timed, why_not_timed = self._timed[name]
        return Group(name, cells[0].data, cells[0].backbone, tuple(rows), timed, why_not_timed)

    def _row(
        self,
        cell: StudyCell,
        cells: Sequence[StudyCell],
        own: Sequence[RunEntry],
        metric: Metric,
    ) -> StudyRow:
        """What the runs of the row say by themselves, computed again when there are more of them,
        or of the plain row that they are compared with."""
        runs = self._finished.get(cell, {})
        plain = _plain_runs(cells, self._finished)
        numbers = len(runs), len(plain)
        if cell not in self._rows or self._rows[cell][0] != numbers:
            stale = [entry for entry in self._history.stale if entry.cell == cell]
            figures = _paper_figures(self._study, cell.group)
            row = _row(
                cell,
                [runs[seed] for seed in sorted(runs)],
                tuple(stale_reasons(stale, own)),
                {m: by_row[cell.row] for m, by_row in figures.items() if cell.row in by_row},
                metric,
                plain,
                self._why,
                self._timed[cell.group][0],
            )
            self._rows[cell] = numbers, row
        return self._rows[cell][1]

    def _notes(self) -> list[str]:
        study, finished = self._study, len(self._folders)
        notes = []
        if self._others:
            others = ", ".join(sorted(self._others))
            notes.append(f"stale runs whose result is {others} never stand in this table")
        if self._mixed:
            notes.append("stale runs are included: rows mix code, data or settings")
        notes += self._told
        notes += _uneven(study, self._images)
        if finished < len(study.runs):
            notes.append(f"{finished} of {len(study.runs)} runs are finished")
        if len(study.seeds) == 1:
            notes.append("one seed: no interval, so nothing can be said to be better")
        if not study.has_plain:
            notes.append("the study has no plain backbone ('none') to compare with")
        if self._without_macs:
            notes.append("no MACs: how much is computed depends on what is found in an image")
        return notes


def _metrics(study: StoredStudy, finished: Finished) -> tuple[Metric, ...]:
    """Return the metrics of the results, which agree: a study has one task."""
    for runs in finished.values():
        for one in runs.values():
            return one.result.metrics
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


def _paper(study: StoredStudy) -> Paper | None:
    """What a paper prints; None if the study has none."""
    found = study.definition.get("paper")
    return Paper.model_validate(found) if found else None


def _paper_figures(study: StoredStudy, group: str) -> dict[str, dict[str, PaperFigure]]:
    """Return the paper's figures by metric and row."""
    paper = _paper(study)
    printed = {} if paper is None else paper.figures
    return {metric: groups.get(group, {}) for metric, groups in printed.items()}


def _row(
    cell: StudyCell,
    runs: Sequence[FinishedRun],
    stale: tuple[str, ...],
    paper: dict[str, PaperFigure],
    metric: Metric,
    plain: dict[int, StoredRun],
    why: str,
    timed: GroupSpeed | None,
) -> StudyRow:
    seeds = tuple(one.entry.seed for one in runs)
    if not runs:
        return StudyRow(cell.row, cell.plain, seeds, (), stale, paper=paper)
    results = [one.result for one in runs]
    by_seed = {one.entry.seed: metric.shown(one.result.value) for one in runs}
    best = {one.entry.seed: metric.shown(one.result.best_value) for one in runs}
    row = StudyRow(
        label=cell.row,
        plain=cell.plain,
        seeds=seeds,
        missing=(),
        stale=stale,
        values=_values(results),
        by_seed=by_seed,
        best=summarize(list(best.values())),
        best_by_seed=best,
        parameters=results[0].parameters,
        macs=results[0].macs,
        train_speed=statistics.median(result.train_images_per_second for result in results),
        paper=paper,
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
    runs: Sequence[FinishedRun],
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
    plain = next((cell for cell in cells if cell.plain), None)
    runs = {} if plain is None else finished.get(plain, {})
    return {seed: one.run for seed, one in runs.items()}


def _of(
    runs: Sequence[FinishedRun],
    reduce: Callable[[list[Any]], T],
    read: Callable[[FinishedRun], Any],
) -> T | None:
    values = [value for run in runs if (value := read(run)) is not None]
    return reduce(values) if values else None


_PACKAGES = ("torch", "attnlab")
"""Whose version may change a result; those of others are in environment.json."""


Versions = dict[tuple[str, str], Counter[str]]
"""In how many runs of a group each version of a package took part, by group and package."""


def _count_versions(versions: Versions, one: FinishedRun) -> None:
    for package in _PACKAGES:
        count = versions.setdefault((one.entry.cell.group, package), Counter())
        count.update({start.packages.get(package, "unknown") for start in one.run.starts})


def mixed_versions(groups: Sequence[str], versions: Versions) -> Iterator[str]:
    """The versions that differ within a group, whose rows are compared with each other. A run that
    went on under another version was made by both."""
    for group in groups:
        for package in _PACKAGES:
            count = versions.get((group, package), Counter())
            if len(count) > 1:
                found = (f"{each} ({counted(count[each], 'run')})" for each in sorted(count))
                yield (
                    f"runs of {group} that are compared were made with {package} "
                    f"{' and '.join(found)}: a difference may be the versions'"
                )


def _data_notes(one: FinishedRun) -> list[str]:
    """What was left out of the data of a run or is missing in them."""
    facts = one.run.data
    notes = () if facts is None else facts.notes
    return [f"{one.entry.cell.data}: {note}".rstrip(".") for note in notes]


def _other_recipes(runs: Sequence[RunEntry]) -> Iterator[str]:
    """Which rows are compared with a plain network that was trained in another way."""
    plain = {run.cell.group: _training(run) for run in runs if run.cell.plain}
    others: dict[str, dict[str, None]] = {}
    for run in runs:
        group = run.cell.group
        if group in plain and _training(run) != plain[group]:
            others.setdefault(group, {})[run.cell.row] = None
    for group, rows in others.items():
        yield (
            f"{group}: {listed(list(rows))} and the plain network were trained by different "
            f"recipes, so the difference is of the recipe as well"
        )


def _training(run: RunEntry) -> list[object]:
    """The settings of a run that a recipe decides: augmentation is among the data's, and the loss
    may be among the task's."""
    settings = run.identity.get("settings")
    names = ("recipe", "data", "task")
    return [settings.get(name) for name in names] if isinstance(settings, Mapping) else []


def _uneven(study: StoredStudy, images: Mapping[str, set[int]]) -> list[str]:
    """Measurements that were not made alike for all runs."""
    notes = []
    for name, numbers in images.items():
        if len(numbers) > 1:
            shown = " and ".join(map(str, sorted(numbers)))
            command = f"`{study.called.measure(study.name, name)}`"
            notes.append(f"{name} was measured on {shown} images: {command} makes it even")
    return notes
