"""A study that is stopped says what was saved, leaves no traceback, and is no success."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from attnlab.study.executors import local
from attnlab.study.worker import Job

STUDY = """
data = { name = "digits", train_subset = 100, test_subset = 50 }
backbone = "resnet20"
attention = "none"
seeds = 2
recipe = { name = "digits", epochs = 500, batch_size = 50 }
measure = { images = 0, inference_images = 0 }
"""
COMMAND = [
    sys.executable,
    "-c",
    # A shell lets its background jobs ignore Ctrl-C, and their children inherit it.
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from attnlab.cli import main; main()",
]


def started(folder: Path, **options: object) -> subprocess.Popen[str]:
    """In a session of its own, so that a signal to its group is Ctrl-C of a terminal."""
    (folder / "long.toml").write_text(STUDY)
    return subprocess.Popen(
        [*COMMAND, "study", "run", "long.toml", "--slots", "1"],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        text=True,
        stderr=subprocess.PIPE,
        start_new_session=True,
        **options,  # type: ignore[call-overload]
    )


def wait_for_an_epoch(folder: Path) -> None:
    for _ in range(3000):
        if list(folder.glob("runs/*/metrics.jsonl")):
            return
        time.sleep(0.1)
    pytest.fail("no epoch was done in five minutes")


@pytest.mark.parametrize(
    ("number", "code", "how"),
    [(signal.SIGINT, 130, "by Ctrl-C"), (signal.SIGTERM, 143, "by SIGTERM")],
)
def test_a_signal_says_what_was_saved(
    tmp_path: Path, number: signal.Signals, code: int, how: str
) -> None:
    process = started(tmp_path, stdout=subprocess.DEVNULL)
    wait_for_an_epoch(tmp_path)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # all of them, as a terminal does
    else:
        process.send_signal(number)
    _, said = process.communicate(timeout=120)
    assert process.returncode == code
    assert (
        f"stopped {how}: 0 of 2 runs are done, 1 have epochs saved (digits resnet20 plain " in said
    )
    assert "/500) in runs. The same command resumes from there." in said
    assert "Traceback" not in said
    (log,) = tmp_path.glob("runs/*/log.txt")
    assert "Traceback" not in log.read_text()
    assert " epochs are saved in " in log.read_text()


def test_a_pipe_that_is_closed_is_no_success(tmp_path: Path) -> None:
    """`attnlab study run … | head -1`, with runs that fail one after the other, a line each."""
    study = STUDY.replace('"none"', '["sse", "ssse", "sssse"]').replace("seeds = 2", "seeds = 1")
    (tmp_path / "bad.toml").write_text(study)
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [*COMMAND, "study", "run", "bad.toml", "--slots", "1"],
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writing)
    os.close(reading)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 141
    assert "Traceback" not in said


def test_a_process_that_goes_on_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first signal is raised where Python ignores exceptions."""
    program = (
        "import signal, sys, time\n"
        "asked = []\n"
        "def stop(number, frame):\n"
        "    asked.append(number)\n"
        "    if len(asked) == 2: sys.exit(3)\n"
        "signal.signal(signal.SIGTERM, stop)\n"
        "print('ready', flush=True)\n"
        "while True: time.sleep(0.01)\n"
    )
    monkeypatch.setattr(local, "_ASK_AGAIN", 0.2)
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as out:
        assert out.readline() == b"ready\n"
        local._stop([local._Running(Job("id", "label", "{}", "{}", "folder"), process, 0)])
    assert process.returncode == 3
