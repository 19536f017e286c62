"""`run_study`: work on what a study still lacks, here or on a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from attnlab.study.definition import Study
from attnlab.study.executors import Executor, LocalExecutor
from attnlab.study.grid import PlannedRun, planned_runs
from attnlab.study.lock import is_claimed
from attnlab.study.store import Store, is_finished
from attnlab.study.worker import Job, Outcome

_POLL_OTHERS = 1.0


def run_study(
    study: Study,
    out: str | Path = "runs",
    executor: Executor | None = None,
    report: Callable[[Outcome], None] | None = None,
) -> list[Outcome]:
    """Finish every run of `study` that is not finished; return the outcomes of those tried.

    Several processes, on one machine or many, may do this for one study at a time: each run is
    worked on by one of them, and all return when the study is complete. A run that failed is tried
    once per call.
    """
    store = Store(Path(out).resolve())
    runs = planned_runs(study)
    store.write_study(study, runs)
    executor = LocalExecutor() if executor is None else executor
    jobs = [job_of(run, store) for run in runs if not is_finished(store.directory(run.run_id))]
    outcomes: list[Outcome] = []
    while jobs:
        busy: list[Job] = []
        for outcome in executor.execute(jobs):
            if report is not None:
                report(outcome)
            if outcome.status == "busy":
                busy.append(outcome.job)
            else:
                outcomes.append(outcome)
        jobs = _taken_over(busy)
    return outcomes


def job_of(run: PlannedRun, store: Store) -> Job:
    return Job(run.run_id, str(run), run.config.to_json(), str(store.directory(run.run_id)))


def _taken_over(busy: Sequence[Job]) -> list[Job]:
    """Wait for the others' runs; those that they left unfinished."""
    while busy:
        left = [job for job in busy if not is_claimed(Path(job.directory))]
        unfinished = [job for job in left if not is_finished(Path(job.directory))]
        if unfinished:
            return unfinished + [job for job in busy if job not in left]
        busy = [job for job in busy if job not in left]
        if busy:
            time.sleep(_POLL_OTHERS)
    return []
