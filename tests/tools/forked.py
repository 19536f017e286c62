"""Run code in processes that are forked from one which has imported what takes long.

Importing torch and attnlab takes two to three seconds, and hundreds of tests want a process of
their own. A fork is as separate as a new one: nothing that it does is seen by the next.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Ended:
    """How a process ended, and what it printed; errors stand among the rest, as in a terminal."""

    code: int
    printed: str


class Forking:
    """A process from which others are forked.

    Args:
        modules: what it imports; all else is new to the processes.
        environment: its own, and that of the processes.
    """

    def __init__(self, *modules: str, environment: dict[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        atexit.register(self.close)

    def run(
        self, code: str, *arguments: str, folder: Path | None = None, seconds: float | None = None
    ) -> Ended:
        """Execute `code` as a program with these arguments.

        Args:
            code: Python, as `python -c` takes it.
            arguments: `sys.argv` of the program.
            folder: where it runs; the present one if left out.
            seconds: after which it is killed with all that it started; TimeoutExpired then.
        """
        asked, answers = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answers is not None
        with tempfile.TemporaryDirectory() as made:
            out = Path(made, "printed")
            asked.write(json.dumps([code, arguments, str(folder or Path.cwd()), str(out)]) + "\n")
            asked.flush()
            pid = int(answers.readline())
            try:
                if not select.select([answers], [], [], seconds)[0]:
                    raise subprocess.TimeoutExpired(code, seconds or 0)
            except BaseException:  # what it started must not outlive it
                os.killpg(pid, signal.SIGKILL)
                answers.readline()
                raise
            ended = int(answers.readline())
            return Ended(ended, out.read_text(encoding="utf-8"))

    def close(self) -> None:
        """End the process; those that are forked from it have ended."""
        if self._process.poll() is None:
            self._process.communicate()


@functools.cache
def forking(*modules: str) -> Forking:
    """One for all tests of this process that want the same modules."""
    return Forking(*modules)


def _serve() -> None:
    """Fork for every line that asks for a program."""
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        code, arguments, folder, out = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os.setsid()
            os.chdir(folder)
            for number, path, flags in (
                (0, os.devnull, os.O_RDONLY),
                (1, out, os.O_WRONLY | os.O_CREAT | os.O_APPEND),
            ):
                opened = os.open(path, flags)
                os.dup2(opened, number)
                os.close(opened)
            os.dup2(1, 2)
            os.close(answers.fileno())
            sys.argv[:] = ["-c", *arguments]
            sys.path[0] = ""  # the folder, as for `python -c`
            _end(_executed(code))
        print(pid, file=answers, flush=True)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), file=answers, flush=True)


def _executed(code: str) -> int:
    try:
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        print(ended.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _end(code: int) -> None:
    """As Python ends, but for taking its modules apart: that copies every page of the process
    which it was forked from, 0.8 seconds for attnlab and torch."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


if __name__ == "__main__":
    for each in sys.argv[1:]:
        importlib.import_module(each)
    gc.collect()
    gc.freeze()  # a collection in a child would touch, and so copy, all of it
    _serve()
    os._exit(0)
