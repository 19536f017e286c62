"""Work on one run: what every executor calls, in a process of its own."""

from __future__ import annotations

import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from attnlab._errors import AttnlabError, InputError
from attnlab.study.lock import claim, owner
from attnlab.study.store import is_finished, write_failure
from attnlab.train.config import RunConfig

BUSY = 75  # EX_TEMPFAIL

Status = Literal["done", "busy", "failed"]


@dataclass(frozen=True)
class Job:
    """A run for an executor: plain text, so that it travels to other machines."""

    run_id: str
    label: str
    config: str
    directory: str


@dataclass(frozen=True)
class Outcome:
    """How an attempt at a job ended."""

    job: Job
    status: Status
    message: str = ""


def work(job: Job, threads: int | None = None) -> Outcome:
    """Train the job's run here, from its last checkpoint on, unless someone else does or did."""
    from attnlab.train import train

    directory = Path(job.directory)
    if not directory.parent.is_dir():
        # On another machine: without shared storage the results would be lost with the node.
        error = InputError(
            f"This machine does not see {directory.parent}. Put --out on storage that all machines "
            f"share."
        )
        return Outcome(job, "failed", str(error))
    with claim(directory) as claimed:
        if not claimed:
            return Outcome(job, "busy", owner(directory))
        if not is_finished(directory):
            try:
                train(RunConfig.from_json(job.config), directory, threads=threads)
            except Exception as error:
                return Outcome(job, "failed", _record(directory, error))
        (directory / "failure.json").unlink(missing_ok=True)
        return Outcome(job, "done")


def _record(directory: Path, error: Exception) -> str:
    """Write failure.json; the message that it begins with."""
    message = str(error) if isinstance(error, AttnlabError) else f"{type(error).__name__}: {error}"
    write_failure(directory, message, "".join(traceback.format_exception(error)))
    return message


def main() -> None:
    """Of a process with the run's directory as argument and its config on standard input.

    Exit code 0: the run is done. 75: another process works on it. Otherwise it failed, and
    failure.json says why.
    """
    directory = Path(sys.argv[1])
    job = Job(directory.name, directory.name, sys.stdin.read(), str(directory))
    outcome = work(job)
    if outcome.status == "failed":
        print(outcome.message, file=sys.stderr)
    sys.exit({"done": 0, "busy": BUSY, "failed": 1}[outcome.status])
