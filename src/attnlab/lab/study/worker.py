"""Work on one run: what every executor calls, in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import traceback
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn

from attnlab._errors import AttnlabError, InputError
from attnlab._imported import import_from
from attnlab.lab.study.lock import claim, owner
from attnlab.lab.study.store import is_finished, write_failure
from attnlab.results import StoredRun
from attnlab.results.digest import SETTLED
from attnlab.results.mirror import mirror_of, results_folder

if TYPE_CHECKING:
    from collections.abc import Callable

    from attnlab.lab.training import RunConfig, RunResult

BUSY = 75  # EX_TEMPFAIL
_LOOK_UP = 0.5
_ASK_AGAIN = 10.0

Status = Literal["done", "busy", "failed"]


@dataclass(frozen=True)
class Job:
    """A run for an executor: plain text, so that it travels to other machines."""

    run_id: str
    label: str
    config: str
    measure: str
    directory: str
    threads: int
    """The number of threads of its process."""
    folders: tuple[str, ...] = ()
    """That classes of the user's own are imported from, after all others."""
    track: str = "[]"
    """Trackers and their options."""
    study: str = ""
    """Under which they put the run."""
    address: str = ""
    """Of the results; `directory` is that of their mirror on the machine that made the job. Empty
    where they are in a folder that all machines share."""
    devices: int = 1
    """Processes of the run, each with a device of its own."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @property
    def is_done(self) -> bool:
        """Whether it is trained, and all that was asked for is measured."""
        from attnlab.instruments.measurement import MeasureConfig
        from attnlab.lab.measures import missing

        directory = Path(self.directory)
        mirror = mirror_of(directory.parent)
        if mirror is not None and not mirror.is_published(directory):
            return False
        if not StoredRun(directory, self.run_id, digested=True).is_trained:
            return False
        return not missing(directory, MeasureConfig.model_validate_json(self.measure))


@dataclass(frozen=True)
class Outcome:
    """How an attempt at a job ended."""

    job: Job
    status: Status
    message: str = ""


def work(job: Job, starter: int | None = None) -> Outcome:
    """Train and measure the job's run here, from its last checkpoint on, unless someone else does
    or did. `starter` is the process with which this one ends."""
    if job.address:  # another machine has its mirror elsewhere
        here = results_folder(job.address) / Path(job.directory).name
        job = replace(job, directory=str(here))
    directory = Path(job.directory)
    for folder in job.folders:
        if Path(folder).is_dir():  # of another machine it may not be
            import_from(folder)
    if not directory.parent.is_dir():
        # On another machine: without shared storage the results would be lost with the node.
        error = InputError(
            f"This machine does not see {directory.parent}. Put --out on storage that all machines "
            f"share, or at an address such as s3://bucket/runs."
        )
        return Outcome(job, "failed", str(error))
    with claim(directory, starter) as claimed:
        if not claimed:
            return Outcome(job, "busy", owner(directory))
        try:
            _train_and_measure(job, directory)
            (directory / "failure.json").unlink(missing_ok=True)
            claimed.publish()
        except Exception as error:
            return Outcome(job, "failed", _record(directory, error))
        time.sleep(SETTLED)  # else its files are too new to be sure of them
        # Reads and checks all files once, here, and leaves what tables take of them.
        assert StoredRun(directory, job.run_id, digested=True).is_trained
        return Outcome(job, "done")


def _train_and_measure(job: Job, directory: Path) -> None:
    from attnlab.instruments.measurement import MeasureConfig
    from attnlab.lab.measures import measure_run
    from attnlab.lab.measures.epoch import EpochMeasure
    from attnlab.lab.tracking import TrackConfig
    from attnlab.lab.training import RunConfig, identify, train

    measure = MeasureConfig.model_validate_json(job.measure)
    if is_finished(directory):
        stored = StoredRun(directory, job.run_id)
        stored.check("result.json", "config.json", "identity.json")
    else:
        config = RunConfig.from_json(job.config)
        now = identify(config, threads=job.threads, devices=job.devices).run_id
        if now != job.run_id:
            raise InputError(
                f"{job.label} was planned as run {job.run_id} and is {now} now: its data, weights "
                f"or classes changed meanwhile. Run the study again, which plans it anew."
            )
        every_epoch = EpochMeasure(measure) if measure.every_epoch else None
        placed = partial(train, threads=job.threads, devices=job.devices, each_epoch=every_epoch)
        source = _finish_source(config, directory, placed, job)
        placed(
            config,
            directory,
            source=source,
            track=[TrackConfig(**each) for each in json.loads(job.track)],
            group=job.study,
        )
    measure_run(directory, measure, threads=job.threads)


def _finish_source(
    config: RunConfig, directory: Path, train: Callable[..., RunResult], job: Job
) -> Path | None:
    """The directory of the run that has to be there before: the one that is measured, of a `where`
    that asks for it, or that this one starts from. It is trained here unless it is finished; it may
    be a run of the study. None of any other."""
    from attnlab.lab.training import identify
    from attnlab.lab.training.placement import source_config

    first = source_config(config) or config.pretraining
    if first is None:
        return None
    known = identify(first, threads=job.threads, devices=job.devices)
    source = directory.parent / known.run_id
    while not is_finished(source):
        with claim(source) as claimed:
            if claimed and not is_finished(source):
                train(first, source)
                claimed.publish()
        if not claimed:
            time.sleep(_LOOK_UP)  # another process works on it
    return source


def _record(directory: Path, error: Exception) -> str:
    """Write failure.json; the message that it begins with."""
    message = str(error) if isinstance(error, AttnlabError) else f"{type(error).__name__}: {error}"
    write_failure(directory, message, "".join(traceback.format_exception(error)))
    return message


def _end_with(parent: int) -> None:
    """End this process when the one that it was started from is gone, as if it had been asked to:
    what a killed study leaves behind does not go on beside what is started next."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_UP)
        print("the process that started this run is gone: stopped", file=sys.stderr, flush=True)
        while True:  # what a signal raises is ignored by Python in some places
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(_ASK_AGAIN)

    threading.Thread(target=watch, daemon=True).start()


def work_on(job: str, parent: int, starter: int) -> NoReturn:
    """Work on a job, given as JSON, and end the process. `parent` is the process that this one was
    started from, with which it ends; `starter` is that of the queue, often the same.

    Exit code 0: the run is done. 75: another process works on it. Otherwise it failed, and
    failure.json says why.
    """
    _end_with(parent)
    outcome = work(Job(**json.loads(job)), starter=starter)
    if outcome.status == "failed":
        print(outcome.message, file=sys.stderr)
    sys.exit({"done": 0, "busy": BUSY, "failed": 1}[outcome.status])


def work_from_arguments() -> None:
    """Work on the job on standard input in a process whose arguments are the job's directory and
    the process that started it."""
    starter = int(sys.argv[2])
    work_on(sys.stdin.read(), starter, starter)
