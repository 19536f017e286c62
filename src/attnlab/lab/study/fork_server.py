"""The process that the runs of a local queue are forked from.

To import torch, lightning-fabric and the rest takes about ten seconds, several times what a small
run trains. This process imports them once and does nothing else: it computes nothing, so it has
one thread, no GPU and no random numbers drawn, and a run that is forked from it begins where a new
process would be after its imports.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec

_POLL = 0.05
"""Seconds after which it is noticed at the latest that a run has ended."""
_NEEDED = (
    "attnlab.lab.study.worker",
    "attnlab.lab.training",
    "attnlab.lab.measures.epoch",
    "attnlab.instruments.stiffness.meters",
    "lightning_fabric",
    "torchvision.models",
    "torchvision.transforms.v2",
    "timm.layers",
)
"""What runs import. Your own classes are not among it: each run imports them itself, so that a run
that starts later sees what its file says then."""


@dataclass(frozen=True)
class Order:
    """One line of JSON that the server reads: start a run, or ask one to end."""

    number: int
    job: str = ""
    """The job as JSON; empty to ask the run of this number to end."""
    log: str = ""
    """The file that what the run prints is added to."""
    starter: int = 0
    """The process of the queue."""

    def to_line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"


@dataclass(frozen=True)
class Ended:
    """One line of JSON that the server answers: a run has ended."""

    number: int
    code: int
    """As `subprocess` gives it: the number of a signal is negative."""

    def to_line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"


def import_what_runs_need() -> None:
    """Import it, if it is installed."""
    for name in _NEEDED:
        if find_spec(name.partition(".")[0]) is not None:
            import_module(name)
    gc.collect()
    gc.freeze()  # else the first collection in every run would copy all that is shared


def serve() -> None:
    """Start a process for each order on standard input, answer on standard output when it has
    ended, and end when there are no more orders because the queue is gone."""
    orders, answers = 0, os.dup(1)
    os.dup2(2, 1)  # what an import prints is not an answer
    import_what_runs_need()
    running: dict[int, int] = {}
    for order in _orders(orders, answers, running):
        if order is None:
            continue
        if not order.job:
            # Only while it is not waited for: afterwards its process number may be another's.
            for process, number in running.items():
                if number == order.number:
                    os.kill(process, signal.SIGTERM)
            continue
        process = os.fork()
        if process == 0:
            os.close(answers)
            _become_run(order)
        running[process] = order.number
    os._exit(0)


def _orders(orders: int, answers: int, running: dict[int, int]) -> Iterator[Order | None]:
    """The orders as they come in, until their pipe is closed. Meanwhile it is answered what of
    `running` has ended."""
    text = b""
    while True:
        ready, _, _ = select.select([orders], [], [], _POLL)
        if ready:
            found = os.read(orders, 1 << 16)
            if not found:
                return
            *lines, text = (text + found).split(b"\n")
            yield from (Order(**json.loads(line)) for line in lines)
        while running:
            process, status = os.waitpid(-1, os.WNOHANG)
            if process == 0:
                break
            code = os.waitstatus_to_exitcode(status)
            os.write(answers, Ended(running.pop(process), code).to_line())


def _become_run(order: Order) -> None:
    """Work on the order's job as a process that was started for it would, and end."""
    from attnlab.lab.study.worker import work_on

    nothing, log = os.open(os.devnull, os.O_RDONLY), os.open(order.log, os.O_WRONLY | os.O_APPEND)
    for opened, place in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(opened, place)
    os.close(nothing)
    os.close(log)
    sys.argv[1:] = [json.loads(order.job)["directory"]]
    work_on(order.job, parent=os.getppid(), starter=order.starter)
