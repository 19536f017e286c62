"""A Ray cluster: a task per run. When a node is lost, its runs go on elsewhere."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any

from attnlab._errors import InputError
from attnlab._words import counted
from attnlab.lab.study.executors._base import Executor, check_reach, missing_package
from attnlab.lab.study.lock import is_claimed
from attnlab.lab.study.store import write_failure
from attnlab.lab.study.worker import Job, Outcome, work

_RETRIES = 3
_LOOK_UP = 2.0
_PATIENCE = 20.0
"""Seconds without an answer; Ray itself ends the process, without a word, after 60."""


class _HeadLostError(Exception):
    """Its message is the address."""


class _Head:
    """Whether the head of a cluster can be reached."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.answered = time.monotonic()

    def check(self) -> None:
        host, _, port = self.address.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=_LOOK_UP):
                self.answered = time.monotonic()
        except OSError:
            if time.monotonic() - self.answered > _PATIENCE:
                raise _HeadLostError(self.address) from None


class RayExecutor(Executor):
    """`address` as for `ray.init`: of a cluster, `"auto"`, or None for RAY_ADDRESS or this machine.
    `cpus` and `gpus` are for each device of a run, all of which are on one node.

    The directories of the runs must be on storage that all nodes share.
    """

    def __init__(self, address: str | None = None, cpus: int = 1, gpus: float = 0) -> None:
        self.address = address
        self.cpus = cpus
        self.gpus = gpus
        self._ray = _import_ray()

    @property
    def threads(self) -> int:
        return self.cpus

    @property
    def threads_asked(self) -> bool:
        return True

    def describe(self) -> str:
        where = self.address or "as RAY_ADDRESS says, or this machine"
        each = f"{counted(self.cpus, 'CPU')} and {counted(self.gpus, 'GPU')}"
        return f"Ray ({where}): {each} per run"

    def execute(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        check_reach(jobs)
        ray = self._ray
        ours = not ray.is_initialized()
        if ours:
            # Ray has its workers import from the folder that is the current one here, before all
            # others. In the root nobody but the system's owner can put a module.
            with chdir(os.path.abspath(os.sep)):
                ray.init(address=self.address, include_dashboard=False, log_to_driver=False)
        try:
            task = ray.remote(work)
            pending = {
                task.options(
                    num_cpus=self.cpus * job.devices,
                    num_gpus=self.gpus * job.devices,
                    max_retries=_RETRIES,
                    scheduling_strategy="SPREAD",
                ).remote(job): job
                for job in jobs
            }
            head = _Head(ray.get_runtime_context().gcs_address)
            while pending:
                ready, _ = ray.wait(list(pending), num_returns=1, timeout=_LOOK_UP)
                head.check()
                for reference in ready:
                    yield self._outcome(reference, pending.pop(reference))
        except _HeadLostError as error:
            ours = False  # there is nothing left to shut down, and asking for it would wait
            raise InputError(
                f"The head of the Ray cluster at {error} does not answer any more. What is "
                f"finished is stored. Start the cluster again and run the same command: it resumes "
                f"from the last checkpoints."
            ) from None
        finally:
            if ours:
                ray.shutdown()

    def _outcome(self, reference: Any, job: Job) -> Outcome:
        try:
            outcome: Outcome = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            first = str(error).strip().partition("\n")[0]
            return _failed(job, f"Ray gave up after {_RETRIES} retries: {first}", str(error))
        return outcome


def _failed(job: Job, message: str, details: str) -> Outcome:
    """The outcome of a task that could not leave its reason itself, for its process is gone."""
    directory = Path(job.directory)
    if directory.parent.is_dir() and not is_claimed(directory):
        write_failure(directory, message, details)
    return Outcome(job, "failed", message)


def _import_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise missing_package("ray", "ray", "leave --on ray out to work on this machine") from None
    return ray
