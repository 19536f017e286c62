"""A study that is stopped says what was saved, leaves no traceback, and is no success."""

from __future__ import annotations

import errno
import io
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.lab.study._small import HereExecutor, small_study

from attnlab.cli._study_run import RunStudy, run_command
from attnlab.lab.study import run_study
from attnlab.lab.study.executors import local
from attnlab.lab.study.lock import is_claimed
from attnlab.lab.study.worker import Job, Outcome

pytestmark = pytest.mark.slow  # real processes, each of which imports torch

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
    # A shell lets its background jobs ignore Ctrl-C, nohup lets them ignore SIGHUP, and their
    # children inherit it.
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "signal.signal(signal.SIGHUP, signal.SIG_DFL); "
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
    [
        (signal.SIGINT, 130, "by Ctrl-C"),
        (signal.SIGTERM, 143, "by SIGTERM"),
        (signal.SIGHUP, 129, "by SIGHUP"),
    ],
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
        f"stopped {how}: 0 of 2 runs are done, 1 has epochs saved (digits resnet20 plain " in said
    )
    assert "/500) in runs. The same command resumes from there." in said
    assert "Traceback" not in said
    (log,) = tmp_path.glob("runs/*/log.txt")
    assert "Traceback" not in log.read_text()
    assert re.search(r" epochs( and \d of 2 steps of the next)? are saved in ", log.read_text())


def test_a_pipe_that_is_closed_is_no_success(tmp_path: Path) -> None:
    """Nobody reads from the beginning on: nothing is started."""
    rows = ", ".join(
        f'{{ gate = "se", label = "{block}", where = "blocks:{block}" }}' for block in (97, 98, 99)
    )
    study = STUDY.replace('"none"', f"[{rows}]").replace("seeds = 2", "seeds = 1")
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
    assert said.splitlines()[1:] == [  # after the warning that no row is without attention
        "stopped because nobody reads its output any more: 0 of 3 runs are done in runs. The same "
        "command resumes from there."
    ]


def test_a_closed_pipe_loses_no_run(tmp_path: Path) -> None:
    """`attnlab study run … | head -2`, and then the same once more without it."""
    (tmp_path / "short.toml").write_text(STUDY.replace("epochs = 500", "epochs = 3"))
    command = [*COMMAND, "study", "run", "short.toml", "--slots", "2"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "short: 2 runs, 2 waiting\n"
        assert process.stdout.readline().endswith("; results in runs\n")
        process.stdout.close()  # the next line is that of a finished run
        said = process.stderr.read()
    assert process.returncode == 141
    assert re.fullmatch(
        r"stopped because nobody reads its output any more: [12] of 2 runs are done.* in runs\. "
        r"The same command resumes from there\.\n",
        said,
    )
    folders = [file.parent for file in tmp_path.glob("runs/*/config.json")]
    assert len(folders) == 2
    assert not any(is_claimed(folder) for folder in folders)  # nothing goes on in secret
    again = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert (again.returncode, again.stderr) == (0, "")
    assert "wrote runs/studies/short/report.html" in again.stdout
    for folder in folders:
        assert (folder / "result.json").is_file()
        log = (folder / "log.txt").read_text()
        assert all(log.count(f"epoch {epoch}/3") <= 1 for epoch in (1, 2, 3))  # none twice


class Closing(io.StringIO):
    """A pipe whose reader goes away after the first mention of a word."""

    def __init__(self, word: str) -> None:
        super().__init__()
        self.word = word

    def write(self, text: str) -> int:
        if self.word in self.getvalue():
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        return super().write(text)


@pytest.mark.parametrize("word", ["top-1 %", "report.html"])
def test_last_words_that_nobody_reads(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    word: str,
) -> None:
    """All runs are done, and the pipe is closed at the table, or behind the page."""
    monkeypatch.setattr("attnlab.lab.study.LocalExecutor", lambda *_, **__: HereExecutor())
    (tmp_path / "short.toml").write_text(STUDY.replace("epochs = 500", "epochs = 2"))
    asked = RunStudy(str(tmp_path / "short.toml"), out=tmp_path / "runs")
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", Closing(word))
        with pytest.raises(BrokenPipeError):
            run_command(asked)
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"stopped because nobody reads its output any more: 2 of 2 runs are done in "
        f"{tmp_path / 'runs'}. The same command resumes from there."
    )


def test_what_cannot_be_reported_stops_the_runs_at_once(tmp_path: Path) -> None:
    """Not when the error is forgotten, which keeps the queue alive."""
    stopped = []

    class Recording(HereExecutor):
        def execute(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
            try:
                for job in jobs:
                    yield Outcome(job, "failed", "made up")
            finally:
                stopped.append(len(jobs))

    def report(outcome: Outcome) -> None:
        raise BrokenPipeError(outcome.message)

    try:
        run_study(small_study(), tmp_path, Recording(), report)
    except BrokenPipeError:
        assert stopped == [2]
    else:
        pytest.fail("the error of the report is lost")


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
        local._stop([local._Running(Job("id", "label", "{}", "{}", "folder", 1), process, 0)])
    assert process.returncode == 3
