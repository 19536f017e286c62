"""The queue's side of the process that runs are forked from (`attnlab.lab.study.fork_server`)."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from attnlab.lab.study.fork_server import Ended, Order
from attnlab.lab.study.worker import Job

_SERVER = "from attnlab.lab.study.fork_server import serve; serve()"
# Ctrl-C reaches all processes of a terminal; it is for the one that started the others to end them.
_DEAF = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); "
_POLL = 0.05


def start_python(
    program: str,
    errors: IO[bytes] | None,
    environment: Mapping[str, str],
    *arguments: str,
    answers: bool = False,
) -> subprocess.Popen[bytes]:
    """Start Python with a program and a pipe to it. What it prints goes to the file `errors`, or
    to a pipe of its own if it `answers`."""
    return subprocess.Popen(
        # -P: a file in the current folder is not taken for a module of Python's own.
        [sys.executable, "-P", "-c", _DEAF + program, *arguments, str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE if answers else errors,
        stderr=errors,
        env=environment,
    )


class ForkServer:
    """Starts runs by forking them from one process, which is started with the first of them. If
    that process is lost, so are its runs, and the next run starts another one."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._text = b""
        self._started = 0
        self._codes: dict[int, int] = {}

    def start(self, job: Job, log: str) -> ForkedProcess:
        """Start the process of a run that adds what it prints to the file `log`."""
        if self._process is not None and self._process.poll() is not None:
            self.close()
        if self._process is None:
            self._process = start_python(_SERVER, None, self._environment, answers=True)
        self._started += 1
        self.send(Order(self._started, job.to_json(), str(Path(log).resolve()), os.getpid()))
        return ForkedProcess(self, self._started, self._process)

    def send(self, order: Order) -> None:
        """Give the server an order; nothing if it is gone, which `code` tells."""
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(order.to_line())
            self._process.stdin.flush()
        except BrokenPipeError:
            self._process.wait()

    def code(self, number: int, process: subprocess.Popen[bytes]) -> int | None:
        """How the run of that number, forked from `process`, ended; None while it goes on."""
        if process is self._process:
            self._read(process)
        if number in self._codes:
            return self._codes[number]
        lost = process.poll()
        # Its runs end with it, and none of them is known to be done.
        return None if lost is None else lost or 1

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        """Take note of what the server answered so far."""
        assert process.stdout is not None
        while select.select([process.stdout], [], [], 0)[0]:
            found = os.read(process.stdout.fileno(), 1 << 16)
            if not found:
                process.wait()
                return
            *lines, self._text = (self._text + found).split(b"\n")
            for answer in (Ended(**json.loads(line)) for line in lines):
                self._codes[answer.number] = answer.code

    def close(self) -> None:
        """End the server; runs that are forked from it end as well."""
        process, self._process, self._text = self._process, None, b""
        if process is not None:
            with process:  # closes its pipes, at which it ends, and waits for it
                pass


class ForkedProcess:
    """The process of a run that was forked."""

    def __init__(self, server: ForkServer, number: int, parent: subprocess.Popen[bytes]) -> None:
        self._server = server
        self._number = number
        self._parent = parent
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """How it ended; None while it goes on."""
        if self.returncode is None:
            self.returncode = self._server.code(self._number, self._parent)
        return self.returncode

    def terminate(self) -> None:
        """Ask the process to end."""
        if self.poll() is None:
            self._server.send(Order(self._number))

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended; `subprocess.TimeoutExpired` if that takes longer."""
        end = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if timeout is not None and end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired("a run", timeout)
            time.sleep(_POLL)
        return code
