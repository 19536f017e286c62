"""`run_study`: work on what a study still lacks, here or on a cluster."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

from attnlab._checked import check_whole
from attnlab._imported import own_folders
from attnlab.lab.study.definition import Study
from attnlab.lab.study.executors import Executor, LocalExecutor
from attnlab.lab.study.grid import check_names, planned_runs
from attnlab.lab.study.lock import is_claimed
from attnlab.lab.study.plan import extended_seeds, planned_threads, write_plan
from attnlab.lab.study.speed import not_timed, time_study
from attnlab.lab.study.store import Store
from attnlab.lab.study.table import GrowingTable, study_table
from attnlab.lab.study.worker import Job, Outcome
from attnlab.lab.tracking import check_trackers
from attnlab.results.study import RunEntry, StoredStudy, write_table
from attnlab.results.table import StudyTable

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
    once per call. The study's table is on disk, up to date with every run that ends.
    """
    store, executor, study = _checked(study, out, executor)
    planned = write_plan(store, study)
    return _finish(store, study, planned, executor, report)


def run_until_decided(
    study: Study,
    out: str | Path = "runs",
    executor: Executor | None = None,
    report: Callable[[Outcome], None] | None = None,
    *,
    most_seeds: int = 30,
) -> list[Outcome]:
    """Finish `study`, then add seeds to it, one at a time, until every row of it is better or worse
    than the plain backbone or it has `most_seeds`.

    The looks are planned, so verdicts are by the anytime-valid interval from the first one on.
    """
    check_whole("most_seeds", most_seeds, 1)
    store, executor, study = _checked(study, out, executor)
    outcomes: list[Outcome] = []
    while True:
        planned = write_plan(store, study, until_decided=True)
        now = _finish(store, study, planned, executor, report)
        outcomes += now
        failed = any(outcome.status == "failed" for outcome in now)
        if failed or len(study.seeds) >= most_seeds or is_decided(study_table(store, planned)):
            return outcomes
        study = study.with_seeds((*study.seeds, max(study.seeds) + 1))


def _checked(
    study: Study, out: str | Path, executor: Executor | None
) -> tuple[Store, Executor, Study]:
    """Where its runs are, what works on them, and the study with all that its plans have added;
    refused is what could only fail."""
    check_trackers(study.track)
    check_names(planned_runs(study))
    store, executor = Store.at(out), executor or LocalExecutor(devices=study.devices)
    return store, executor, with_threads_of(extended_seeds(store, study), store, executor)


def with_threads_of(study: Study, store: Store, executor: Executor) -> Study:
    """`study` with the threads that its runs have. What it says itself goes first, then what the
    executor was asked for, then its last plan, so that other slots or another machine go on with
    the runs that are there; then what the executor takes by itself."""
    if study.threads is not None:
        return study
    before = None if executor.threads_asked else planned_threads(store, study.name)
    return study.with_threads(before or executor.threads)


def is_decided(table: StudyTable) -> bool:
    """Return whether every module is known to be better or worse than the plain backbone."""
    rows = [row for group in table.groups for row in group.rows if not row.plain]
    found = [row.comparison.verdict if row.comparison else "cannot tell" for row in rows]
    return all(verdict in ("better", "worse") for verdict in found)


def _finish(
    store: Store,
    study: Study,
    planned: StoredStudy,
    executor: Executor,
    report: Callable[[Outcome], None] | None,
) -> list[Outcome]:
    directory = store.study_directory(study.name)
    growing = GrowingTable(store, planned)
    write_table(directory, growing.table())
    jobs = [job for job in study_jobs(store, study, planned.runs) if not job.is_done]
    outcomes: list[Outcome] = []
    while jobs:
        busy: list[Job] = []
        attempts = executor.execute(jobs)
        try:
            for outcome in attempts:
                if outcome.status == "busy":
                    busy.append(outcome.job)
                else:
                    outcomes.append(outcome)
                    store.look_again()  # it may have been made on another machine
                    growing.add(Path(outcome.job.directory).name)
                    write_table(directory, growing.table())
                if report is not None:
                    report(outcome)
        finally:
            # Where `report` fails, at a pipe that is closed for one, the runs are stopped now, and
            # not when the last trace of the error is gone.
            if isinstance(attempts, Generator):
                attempts.close()
        jobs = _taken_over(busy, store)
    _time(store, study, planned, executor)
    # Once more, of all that is on disk now: others may have worked on the study too.
    store.look_again()
    write_table(directory, study_table(Store(store.out), planned))
    if store.mirror is not None:
        store.mirror.put_pages(study.name)
    return outcomes


def _time(store: Store, study: Study, planned: StoredStudy, executor: Executor) -> None:
    """Now that no run of the study is worked on."""
    images = study.measure.inference_images
    if not images:
        return
    if isinstance(executor, LocalExecutor):
        time_study(store, planned, images, threads=study.threads, again=False)
    else:
        not_timed(store, planned, f"the runs were made elsewhere: {executor.describe()}")


def study_jobs(store: Store, study: Study, entries: Sequence[RunEntry]) -> list[Job]:
    """One for each run, with what is to be measured of it."""
    measure, folders = study.measure.model_dump_json(), own_folders()
    track = json.dumps([each.model_dump() for each in study.track])
    return [
        Job(
            entry.run_id,
            str(entry),
            run.config.to_json(),
            measure,
            str(store.out / entry.folder),
            run.threads,
            folders,
            track,
            study.name,
            store.mirror.address if store.mirror else "",
            run.devices,
        )
        for run, entry in zip(planned_runs(study), entries, strict=True)
    ]


def _taken_over(busy: Sequence[Job], store: Store) -> list[Job]:
    """Wait for the others' runs; those that they left unfinished."""
    while busy:
        store.look_again()
        left = [job for job in busy if not is_claimed(Path(job.directory))]
        unfinished = [job for job in left if not job.is_done]
        if unfinished:
            return unfinished + [job for job in busy if job not in left]
        busy = [job for job in busy if job not in left]
        if busy:
            time.sleep(_POLL_OTHERS)
    return []
