"""The lock of a run, with real processes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from attnlab.lab.study.lock import claim, is_claimed, owner

HOLD = """
import sys, time
from pathlib import Path
from attnlab.lab.study.lock import claim
with claim(Path(sys.argv[1])) as claimed:
    print(bool(claimed), flush=True)
    time.sleep(60)
"""


def hold(directory: Path) -> subprocess.Popen:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(directory)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "True\n"
    return process


def end(process: subprocess.Popen) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def test_a_run_that_a_living_process_holds_is_not_claimed(tmp_path: Path) -> None:
    holder = hold(tmp_path)
    try:
        assert is_claimed(tmp_path)
        with claim(tmp_path) as claimed:
            assert not claimed
        assert is_claimed(tmp_path)
        assert owner(tmp_path).endswith(f"process {holder.pid}")
    finally:
        end(holder)


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path: Path) -> None:
    holder = hold(tmp_path)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    began = time.monotonic()
    with claim(tmp_path) as claimed:
        assert claimed
    assert time.monotonic() - began < 1
    end(holder)


def test_claims_end(tmp_path: Path) -> None:
    for _ in range(2):
        with claim(tmp_path) as claimed:
            assert claimed
            assert is_claimed(tmp_path)
        assert not is_claimed(tmp_path)
    assert not is_claimed(tmp_path / "never")
