"""How far a study is, and what it says so far, as its file is now."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from attnlab._files import unless_read_only
from attnlab.lab.study.current import require_study
from attnlab.lab.study.history import stale_reasons, study_history
from attnlab.lab.study.lock import owner
from attnlab.lab.study.progress import RunProgress, run_progress
from attnlab.lab.study.store import State, Store
from attnlab.lab.study.table import study_table
from attnlab.results import DamagedFileError, StoredRun
from attnlab.results.metric import Metric
from attnlab.results.study import RunEntry, StoredStudy, read_study, write_table
from attnlab.results.table import StudyTable

if TYPE_CHECKING:
    from attnlab.lab.study.definition import Study


@dataclass(frozen=True)
class RunStatus:
    """One run."""

    entry: RunEntry
    state: State
    detail: str
    """Who works on it, why it failed, or what is damaged."""


@dataclass(frozen=True)
class StudyStatus:
    """All runs of a study."""

    runs: tuple[RunStatus, ...]
    stale: tuple[str, ...]
    """`3: the gate's source changed (my_gates.MyGate)`: finished runs that do not count."""
    progress: tuple[RunProgress, ...] = ()
    """How far each of these runs is."""
    metric: Metric = field(default_factory=lambda: Metric(name="result", label="result"))
    """The result's."""

    def __str__(self) -> str:
        count = Counter(run.state for run in self.runs)
        parts = [f"{number} {state}" for state, number in count.items()]
        return ", ".join([*parts, *(text.replace(":", " stale:", 1) for text in self.stale)])


def study_status(study: Study, out: str | Path = "runs") -> StudyStatus:
    """The state of every run of `study` as it would be planned now."""
    from attnlab.lab.study.plan import extended, present  # which need torch

    store = Store.at(out)
    return _status(store, present(store, extended(store, study)))


def planned_status(name: str, out: str | Path = "runs") -> StudyStatus:
    """The state of every run of the stored study `name` as it was planned last. Its file, its data
    and your own classes are not looked at: it takes less time, and does not see that they have
    changed."""
    store = Store.at(out)
    return _status(store, read_study(require_study(store, name)))


def _status(store: Store, planned: StoredStudy) -> StudyStatus:
    runs = tuple(
        RunStatus(entry, state, _detail(store, entry, state))
        for entry in planned.runs
        for state in [store.state(entry)]
    )
    stale = study_history(store, planned.name, planned.runs, planned.claim).stale
    metric = planned.metrics[0] if planned.metrics else Metric(name="result", label="result")
    progress = tuple(run_progress(store, run.entry, run.state, metric.name) for run in runs)
    return StudyStatus(runs, tuple(stale_reasons(stale, planned.runs)), progress, metric)


def show_study(
    study: Study, out: str | Path = "runs", *, include_stale: bool = False
) -> StudyTable:
    """The table of what is finished of `study` as it would be planned now.

    `include_stale` also takes finished runs that were made from other code, data or settings; then
    nothing is said to be better.
    """
    from attnlab.lab.study.plan import extended, present  # which need torch

    store = Store.at(out)
    planned = present(store, extended(store, study))
    table = study_table(store, planned, include_stale=include_stale)
    directory = store.study_directory(study.name)
    if (directory / "study.json").is_file() and not include_stale:
        with unless_read_only(directory), suppress(DamagedFileError):
            stored = read_study(directory)
            if (stored.runs, stored.definition) == (planned.runs, planned.definition):
                write_table(directory, table)  # else it would not be the stored study's
    return table


@dataclass(frozen=True)
class SeedsNeeded:
    """How many paired seeds show an effect of a module, at the spread seen so far."""

    group: str
    row: str
    spread: float
    seen: int
    fixed: int | None
    """If their number is fixed beforehand; None where more than a thousand."""
    anytime: int | None
    """If one looks on the way."""


def seeds_for_effect(table: StudyTable, effect: float) -> list[SeedsNeeded]:
    """Return the number of seeds for every row that has a spread; `effect` is in the metric's
    unit."""
    from attnlab.lab.statistics.power import seeds_needed

    found = []
    for group in table.groups:
        for row in group.rows:
            difference = row.comparison.difference if row.comparison else None
            if difference is None or difference.std is None:
                continue
            fixed, anytime = (
                seeds_needed(effect, difference.std, table.level, sequential=sequential)
                for sequential in (False, True)
            )
            number = len(difference.seeds)
            found.append(SeedsNeeded(group.name, row.label, difference.std, number, fixed, anytime))
    return found


def _detail(store: Store, entry: RunEntry, state: State) -> str:
    directory = store.out / entry.folder
    if state == "running":
        return owner(directory)
    if state == "damaged":
        return " ".join(map(str, store.run(entry).damage))
    failure = StoredRun(directory).failure if state == "failed" else None
    return failure.error if failure else ""
