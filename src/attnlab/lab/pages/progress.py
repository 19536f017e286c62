"""The part of a study's page while it is not finished: how far each run is."""

from __future__ import annotations

from collections import Counter

from attnlab.page.parts import Cell, Section, Table
from attnlab.results.record import RunRecord, StudyRecord

_ORDER = ("begun", "damaged", "failed", "waiting", "done")


def is_open(record: StudyRecord) -> bool:
    """Whether runs are still to be done."""
    return len(record.finished) < len(record.runs)


def progress_section(record: StudyRecord) -> list[Section]:
    """One section while runs are missing; none of a study that is finished."""
    if not is_open(record):
        return []
    runs = sorted(record.runs, key=lambda run: _ORDER.index(run.state))
    metric = record.metric
    columns = ["run", "state", "epoch", "training loss", metric.title]
    table = Table(columns, [_row(run, metric.name, record) for run in runs], names=2)
    count = Counter(run.state for run in record.runs)
    states = ", ".join(f"{count[state]} {state}" for state in _ORDER if count[state])
    to_do = (
        f"`attnlab study run {record.table.study}` goes on where it stopped; `attnlab study status "
        f"{record.table.study} --watch` shows it on a terminal, and `attnlab report RUNS --serve` "
        f"keeps this page up to date."
    )
    return [Section("How far is it?", "", [table], f"{len(runs)} runs: {states}.", to_do)]


def _row(run: RunRecord, name: str, record: StudyRecord) -> list[Cell]:
    history, epochs = run.stored.history, run.stored.config.recipe.epochs
    label = Cell(f"{record.label_of(run)}")
    if not history:
        return [label, Cell(run.state), Cell("—"), Cell("—"), Cell("—")]
    last = history[-1]
    value, loss = last.test.get(name), last.train_loss
    return [
        label,
        Cell(run.state),
        Cell(f"{len(history)}" + ("" if epochs is None else f" / {epochs}"), order=len(history)),
        Cell("—") if loss is None else Cell(f"{loss:.3f}", order=loss),
        Cell("—") if value is None else Cell(record.metric.text(value), order=value),
    ]
