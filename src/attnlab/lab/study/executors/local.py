"""A queue on this machine: a process per run, so that a crash loses one run.

Without a GPU, where the system can fork (Linux), the processes are forked from one that has
imported everything: beside training and measuring, a run takes 0.2 CPU seconds instead of six. With
a GPU, or elsewhere, each process starts anew: what CUDA and the libraries of macOS set up does not
survive a fork.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from attnlab._checked import check_whole
from attnlab._words import counted
from attnlab.lab.study.executors._base import Executor, check_reach
from attnlab.lab.study.executors._forks import ForkServer, start_python
from attnlab.lab.study.lock import is_claimed, is_left_behind, owner
from attnlab.lab.study.store import write_failure
from attnlab.lab.study.threads import cores, default_threads, number_of_gpus
from attnlab.lab.study.worker import BUSY, Job, Outcome
from attnlab.results import StoredRun

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_KEPT_MEMORY = {
    "MALLOC_TRIM_THRESHOLD_": str(16 * 2**30),
    "MALLOC_MMAP_THRESHOLD_": str(32 * 2**20),
}
"""glibc keeps what a step frees for the next step; by default it gives it back and the system
clears it again, which takes up to a fifth of the time of training on a CPU."""
_PROGRAM = "from attnlab.lab.study.worker import work_from_arguments; work_from_arguments()"
_POLL = 0.05
_ASK_AGAIN = 10.0


class RunProcess(Protocol):
    """The process of a run, as the queue sees it; `subprocess.Popen` is one."""

    returncode: int | None

    def poll(self) -> int | None:
        """How it ended; None while it goes on."""

    def terminate(self) -> None:
        """Ask the process to end."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended; `subprocess.TimeoutExpired` if that takes longer."""


@dataclass
class _Running:
    job: Job
    process: RunProcess
    slot: int


class LocalExecutor(Executor):
    """`slots` runs of `devices` processes at a time: one per GPU, or one per core if there is
    none, or as many as leave each process one. Threads per process are `threads`, else
    OMP_NUM_THREADS, else the cores divided among the processes. Slot k uses GPU k, or as many GPUs
    in a row as a run has devices, modulo their number. A run that a killed study
    left behind has one of the slots until it has ended."""

    def __init__(
        self, slots: int | None = None, threads: int | None = None, devices: int = 1
    ) -> None:
        for name, value in (("slots", slots), ("threads", threads), ("devices", devices)):
            if value is not None:
                check_whole(name, value, 1)
        self.gpus = number_of_gpus()
        self.slots = slots or max(1, (self.gpus or cores()) // devices)
        self._devices = devices
        self._threads = threads

    @property
    def threads(self) -> int:
        return self._threads or default_threads(self.slots * self._devices)

    @property
    def threads_asked(self) -> bool:
        return self._threads is not None or super().threads_asked

    @property
    def at_a_time(self) -> int:
        return self.slots

    def describe(self) -> str:
        where = counted(self.gpus, "GPU") if self.gpus else "no GPU"
        return f"this machine: {self.slots} at a time, {where}"

    def execute(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        check_reach(jobs)
        queue = deque(jobs)
        free = deque(range(self.slots))
        running: list[_Running] = []
        left_behind = [Path(job.directory) for job in jobs]
        # Libraries read the number of threads when they are loaded: one server for each.
        servers: dict[int, ForkServer] = {}
        try:
            while queue or running:
                left_behind = [folder for folder in left_behind if is_left_behind(folder)]
                while queue and len(free) > len(left_behind):
                    job = queue.popleft()
                    known = _known(job)
                    if known is not None:
                        yield known
                    else:
                        slot = free.popleft()
                        running.append(_Running(job, self._start(job, slot, servers), slot))
                ended = [one for one in running if one.process.poll() is not None]
                for one in ended:
                    running.remove(one)
                    free.append(one.slot)
                    assert one.process.returncode is not None
                    yield _outcome(one.job, one.process.returncode)
                if not ended:
                    time.sleep(_POLL)
        finally:
            _stop(running)
            for server in servers.values():
                server.close()

    @property
    def _forks(self) -> bool:
        return sys.platform == "linux" and not self.gpus

    def _environment(self, slot: int, job: Job) -> dict[str, str]:
        """What the process of a run finds in its environment."""
        threads = dict.fromkeys(_THREAD_VARIABLES, str(job.threads))
        environment = _KEPT_MEMORY | os.environ | threads
        if self.gpus:
            environment["CUDA_VISIBLE_DEVICES"] = _gpus(slot, self.gpus, job.devices)
        return environment

    def _start(self, job: Job, slot: int, servers: dict[int, ForkServer]) -> RunProcess:
        directory = Path(job.directory)
        directory.mkdir(parents=True, exist_ok=True)
        with (directory / "log.txt").open("ab") as log:
            environment = self._environment(slot, job)
            if self._forks:
                if job.threads not in servers:
                    servers[job.threads] = ForkServer(environment)
                return servers[job.threads].start(job, log.name)
            process = start_python(_PROGRAM, log, environment, job.directory)
        assert process.stdin is not None
        process.stdin.write(job.to_json().encode())
        process.stdin.close()
        return process


def _known(job: Job) -> Outcome | None:
    """What others made of the job meanwhile; saves the seconds in which a process starts."""
    directory = Path(job.directory)
    if job.is_done:
        return Outcome(job, "done")
    return Outcome(job, "busy", owner(directory)) if is_claimed(directory) else None


def _outcome(job: Job, code: int) -> Outcome:
    directory = Path(job.directory)
    if code == 0:
        return Outcome(job, "done")
    if code == BUSY:
        return Outcome(job, "busy", owner(directory))
    number = -code if code < 0 else code - 128  # as the system and as a shell write it
    if number in signal.valid_signals():
        message = f"its process was ended by {signal.Signals(number).name}"
        write_failure(directory, message)
        return Outcome(job, "failed", message)
    failure = StoredRun(directory).failure
    message = failure.error if failure else f"its process ended with code {code}; see log.txt"
    return Outcome(job, "failed", message)


def _stop(running: list[_Running]) -> None:
    """Ask the processes to end; each leaves its last checkpoint. Ask again where one goes on: what
    a signal raises is ignored by Python in some places, in the end of an object for example."""
    for one in running:
        one.process.terminate()
    for one in running:
        while True:
            try:
                one.process.wait(_ASK_AGAIN)
                break
            except subprocess.TimeoutExpired:
                one.process.terminate()


def _gpus(slot: int, number: int, devices: int) -> str:
    """The slot's GPUs among those that this process may see; no more than there are, so that a run
    that asks for more is told so."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else [str(index) for index in range(number)]
    mine = [(slot * devices + device) % number for device in range(min(devices, number))]
    return ",".join(names[index] for index in mine)
