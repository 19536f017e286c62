"""What the finished runs of a study say: one row per cell, compared with the plain backbone."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from attnlab.study.definition import Figure, Study
from attnlab.study.grid import Cell, PlannedRun
from attnlab.study.statistics import (
    LEVEL,
    Comparison,
    Summary,
    compare,
    paired_difference,
    summarize,
)
from attnlab.study.store import Store
from attnlab.train.result import RunResult

T = TypeVar("T")


@dataclass(frozen=True)
class Row:
    """One module of a group; accuracies in percent, over the seeds that are finished."""

    label: str
    plain: bool
    seeds: tuple[int, ...]
    missing: tuple[int, ...]
    """Seeds that are planned but not finished."""
    top1: Summary | None = None
    """Last epoch: the result. None before any run is finished, like everything below."""
    best_top1: Summary | None = None
    """Best epoch by test accuracy: optimistic, for comparison with papers that print it."""
    comparison: Comparison | None = None
    """With the plain backbone, by seed; in points of percent."""
    parameters: int | None = None
    macs: int | None = None
    train_speed: float | None = None
    """Images per second, median over seeds; each run is timed alone, so no ratio of these is
    better than the machine was quiet."""
    inference_speed: float | None = None
    tns: Summary | None = None
    fold_error: float | None = None
    """Largest over seeds; None where nothing folds."""
    folded_parameters: int | None = None
    folded_top1: Summary | None = None
    paper: Figure | None = None


@dataclass(frozen=True)
class Group:
    """The rows that share data and backbone; Holm's correction is over these."""

    name: str
    data: str
    backbone: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class StudyTable:
    """The table of a study; `table.json` of its directory."""

    study: str
    title: str
    level: float
    groups: tuple[Group, ...]
    paper_source: str
    paper_note: str
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def study_table(study: Study, runs: Sequence[PlannedRun], out: str | Path) -> StudyTable:
    """The table of what is finished in `out`."""
    results = {run.run_id: result for run, result in Store(Path(out)).results(runs)}
    names = dict.fromkeys(run.cell.group for run in runs)
    groups = tuple(_group(study, [r for r in runs if r.cell.group == n], results) for n in names)
    return StudyTable(
        study=study.name,
        title=study.title or study.name,
        level=LEVEL,
        groups=groups,
        paper_source=study.paper.source if study.paper else "",
        paper_note=study.paper.note if study.paper else "",
        notes=tuple(_notes(study, runs, results)),
    )


def _group(study: Study, runs: Sequence[PlannedRun], results: dict[str, RunResult]) -> Group:
    cells = list(dict.fromkeys(run.cell for run in runs))
    accuracy = {
        cell: {
            run.seed: 100 * results[run.run_id].top1
            for run in runs
            if run.run_id in results and run.cell == cell
        }
        for cell in cells
    }
    comparisons = _comparisons(accuracy)
    figures = study.paper.top1.get(cells[0].group, {}) if study.paper else {}
    rows = tuple(
        _row(
            cell,
            {run.seed: results.get(run.run_id) for run in runs if run.cell == cell},
            comparisons.get(cell.row),
            figures.get(cell.row),
        )
        for cell in cells
    )
    return Group(cells[0].group, cells[0].data, cells[0].backbone, rows)


def _comparisons(accuracy: dict[Cell, dict[int, float]]) -> dict[str, Comparison]:
    plain = next((values for cell, values in accuracy.items() if cell.plain), {})
    differences = {
        cell.row: paired_difference(values, plain)
        for cell, values in accuracy.items()
        if not cell.plain and values.keys() & plain.keys()
    }
    return compare(differences)


def _row(
    cell: Cell,
    by_seed: dict[int, RunResult | None],
    comparison: Comparison | None,
    paper: Figure | None,
) -> Row:
    found = {seed: result for seed, result in by_seed.items() if result is not None}
    seeds = tuple(sorted(found))
    missing = tuple(sorted(by_seed.keys() - found.keys()))
    if not found:
        return Row(cell.row, cell.plain, seeds, missing, paper=paper)
    results = [found[seed] for seed in seeds]
    return Row(
        label=cell.row,
        plain=cell.plain,
        seeds=seeds,
        missing=missing,
        top1=summarize([100 * result.top1 for result in results]),
        best_top1=summarize([100 * result.best_top1 for result in results]),
        comparison=comparison,
        parameters=results[0].parameters,
        macs=results[0].macs,
        train_speed=statistics.median(result.train_images_per_second for result in results),
        inference_speed=_of(results, statistics.median, lambda r: r.inference_images_per_second),
        tns=_of(results, summarize, lambda r: r.tns),
        fold_error=_of(results, max, lambda r: r.fold_error),
        folded_parameters=results[0].folded_parameters,
        folded_top1=_of(
            results, summarize, lambda r: None if r.folded_top1 is None else 100 * r.folded_top1
        ),
        paper=paper,
    )


def _of(
    results: Sequence[RunResult],
    reduce: Callable[[list[float]], T],
    read: Callable[[RunResult], float | None],
) -> T | None:
    values = [value for result in results if (value := read(result)) is not None]
    return reduce(values) if values else None


def _notes(study: Study, runs: Sequence[PlannedRun], results: dict[str, RunResult]) -> list[str]:
    notes = []
    if len(results) < len(runs):
        notes.append(f"{len(results)} of {len(runs)} runs are finished")
    if len(study.seeds) == 1:
        notes.append("one seed: no interval, so nothing can be said to be better")
    if not study.has_plain:
        notes.append("the study has no plain backbone ('none') to compare with")
    return notes
