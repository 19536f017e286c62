"""Run code in processes that have torch but no attnlab yet, as a new session of Python has none.

They are forked from one process that imported torch, so that each takes little time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from pathlib import Path


class FreshPython:
    """Executes code in a folder, each time in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, code: str) -> str:
        """Execute `code`; the traceback where it fails, else nothing."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(code) + "\n")
        self._process.stdin.flush()
        answer: str = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        self._process.communicate()


def _serve() -> None:
    import timm  # noqa: F401
    import torch  # noqa: F401
    import torchvision  # noqa: F401

    sys.path[0] = ""  # the folder, as in a session
    assert not any(name.startswith("attnlab") for name in sys.modules)
    for line in sys.stdin:
        reading, writing = os.pipe()
        if os.fork() == 0:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            with os.fdopen(writing, "w") as failure:
                failure.write(_failure(json.loads(line)))
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as failure:
            print(json.dumps(failure.read()), flush=True)
        _, status = os.wait()
        assert status == 0, f"it died with {status}"


def _failure(code: str) -> str:
    try:
        exec(compile(code, "<printed>", "exec"), {"__name__": "printed"})
    except BaseException:
        return traceback.format_exc()
    return ""


if __name__ == "__main__":
    _serve()
