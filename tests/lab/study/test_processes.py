"""The local queue with real processes: two at one study, and one that is killed."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from tests.lab.study._small import small_study

from attnlab.lab.study import LocalExecutor, Store, planned_runs, run_study
from attnlab.lab.study.executors import _forks
from attnlab.lab.study.executors.local import RunProcess
from attnlab.lab.study.lock import claim, is_claimed, is_left_behind
from attnlab.lab.study.plan import write_plan
from attnlab.lab.study.run import study_jobs
from attnlab.lab.study.worker import Job, Outcome
from attnlab.lab.training import train
from attnlab.results.study import read_plans

pytestmark = pytest.mark.slow  # real processes, each of which imports torch

RUN = """
import sys
from attnlab.results.study import read_study
from attnlab.lab.study import LocalExecutor, Store, Study, run_study
from pathlib import Path
directory = Store(Path(sys.argv[1])).study_directory("small")
study = Study(**read_study(directory).definition)
outcomes = run_study(study, sys.argv[1], LocalExecutor(slots=1, threads=1))
print(sum(outcome.status == "done" for outcome in outcomes))
"""


def test_two_processes_share_a_study_and_train_nothing_twice(tmp_path: Path) -> None:
    study = small_study()
    store = Store(tmp_path)
    runs = write_plan(store, study).runs
    both = [
        subprocess.Popen(
            [sys.executable, "-c", RUN, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    try:
        counts = [int(process.communicate(timeout=300)[0]) for process in both]
    finally:
        for process in both:
            process.kill()
    assert [process.returncode for process in both] == [0, 0]
    assert len(read_plans(store.study_directory("small")).plans) == 1
    # Each came back only when all was finished; a run may be "done" for both, by the other's work.
    assert sum(counts) >= len(runs)
    for run in runs:
        assert store.state(run) == "done"
        log = (tmp_path / run.folder / "log.txt").read_text()
        assert log.count("epoch 1/2") == 1
        assert log.count("epoch 2/2") == 1


def test_a_killed_run_loses_nothing_else_and_resumes_to_the_same_weights(tmp_path: Path) -> None:
    recipe = {"name": "digits", "epochs": 5, "batch_size": 50}
    study = small_study(attention="se", recipe=recipe)
    (run,) = planned_runs(study)
    directory = tmp_path / run.run_id

    def kill_after_two_epochs() -> None:
        metrics = directory / "metrics.jsonl"
        while not metrics.exists() or len(metrics.read_text().splitlines()) < 2:
            time.sleep(0.01)
        os.kill(json.loads((directory / "owner.json").read_text())["pid"], signal.SIGKILL)

    killer = threading.Thread(target=kill_after_two_epochs)
    killer.start()
    executor = LocalExecutor(slots=1, threads=1)
    (outcome,) = run_study(study, tmp_path, executor)
    killer.join()
    assert (outcome.status, outcome.message) == ("failed", "its process was ended by SIGKILL")
    assert (directory / "failure.json").exists()
    (outcome,) = run_study(study, tmp_path, executor)
    assert outcome.status == "done"
    assert not (directory / "failure.json").exists()
    log = (directory / "log.txt").read_text()
    assert log.count("epoch 1/5") == 1
    assert log.count("epoch 5/5") == 1
    train(run.config, tmp_path / "straight", threads=1, progress=lambda _: None)
    found, expected = (
        load_file(folder / "model.safetensors") for folder in (directory, tmp_path / "straight")
    )
    assert all(found[name].equal(expected[name]) for name in expected)


LONG = """
import sys
from tests.lab.study._small import small_study
from attnlab.lab.study import LocalExecutor, run_study
recipe = {"name": "digits", "epochs": 400, "batch_size": 50}
run_study(small_study(recipe=recipe), sys.argv[1], LocalExecutor(slots=2, threads=1))
"""


def test_what_a_killed_study_left_behind_ends(tmp_path: Path) -> None:
    """Its runs stop with what they have, so that the next start has its slots for itself."""
    recipe = {"name": "digits", "epochs": 400, "batch_size": 50}
    folders = [tmp_path / run.run_id for run in planned_runs(small_study(recipe=recipe))]
    root = Path(__file__).parents[3]
    path = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
    study = subprocess.Popen(
        [sys.executable, "-c", LONG, str(tmp_path)], env={**os.environ, "PYTHONPATH": path}
    )
    try:
        until(lambda: all((folder / "metrics.jsonl").exists() for folder in folders))
        assert all(is_claimed(folder) for folder in folders)
    finally:
        study.kill()
        study.wait()
    until(lambda: not any(is_claimed(folder) for folder in folders))
    for folder in folders:
        assert not (folder / "result.json").exists()
        assert list((folder / "checkpoints").glob("epoch-*.pt"))
        log = (folder / "log.txt").read_text()
        assert "the process that started this run is gone: stopped" in log
        assert "Traceback" not in log


HOLD = """
import sys
from pathlib import Path
from attnlab.lab.study.lock import claim
with claim(Path(sys.argv[1]), int(sys.argv[2])) as claimed:
    print(bool(claimed), flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize(("slots", "meanwhile"), [(1, 0), (2, 1)])
def test_a_run_that_was_left_behind_has_its_slot_until_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slots: int, meanwhile: int
) -> None:
    """Never more processes than slots, the ones that a killed study left among them."""
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass  # so that no process has its number
    jobs = [Job(name, name, "{}", "{}", str(tmp_path / name), 1) for name in ("left", "a", "b")]
    began: list[str] = []

    def start(self: LocalExecutor, job: Job, *_: object) -> RunProcess:
        del self
        began.append(job.label)
        return subprocess.Popen([sys.executable, "-c", "", job.label])

    monkeypatch.setattr(LocalExecutor, "_start", start)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, jobs[0].directory, str(gone.pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        assert is_left_behind(tmp_path / "left")
        outcomes: list[Outcome] = []
        executor = LocalExecutor(slots=slots, threads=1)
        queue = threading.Thread(target=lambda: outcomes.extend(executor.execute(jobs)))
        queue.start()
        time.sleep(1.0)
        assert (len(began) > 0) == bool(meanwhile)
        assert "left" not in began
        holder.stdin.close()
    queue.join(60)
    assert not is_left_behind(tmp_path / "left")
    # With a slot to spare it is passed over as one that another process works on, and comes later.
    assert began == (["left", "a", "b"] if slots == 1 else ["a", "b"])
    assert [outcome.status for outcome in outcomes].count("busy") == meanwhile
    assert len(outcomes) == 3


def test_a_run_of_a_living_study_is_not_left_behind(tmp_path: Path) -> None:
    with claim(tmp_path, os.getpid()):
        assert is_claimed(tmp_path)
        assert not is_left_behind(tmp_path)
    with claim(tmp_path):  # of Ray or Slurm, which end their processes themselves
        assert not is_left_behind(tmp_path)


def until(true: Callable[[], bool], seconds: float = 600) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.1)


def test_every_run_has_a_process_and_one_process_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []

    def start(program: str, *rest: Any, **named: Any) -> subprocess.Popen[bytes]:
        started.append(program)
        return start_python(program, *rest, **named)

    start_python = _forks.start_python
    monkeypatch.setattr(_forks, "start_python", start)
    study = small_study(seeds=2)
    outcomes = run_study(study, tmp_path, LocalExecutor(slots=2, threads=1))
    assert [outcome.status for outcome in outcomes] == ["done"] * 4
    assert len(started) == 1
    folders = [tmp_path / run.run_id for run in planned_runs(study)]
    owners = [json.loads((folder / "owner.json").read_text()) for folder in folders]
    assert len({owner["pid"] for owner in owners} | {os.getpid()}) == 5
    assert {owner["starter"] for owner in owners} == {os.getpid()}
    for run, folder in zip(planned_runs(study), folders, strict=True):
        straight = tmp_path / "straight" / run.run_id
        train(run.config, straight, threads=1, progress=lambda _: None)
        assert sha256(folder / "model.safetensors") == sha256(straight / "model.safetensors")
        assert " epoch 2/2 " in (folder / "log.txt").read_text()


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def test_what_runs_are_forked_from_has_one_thread_and_no_gpu() -> None:
    """Threads do not survive a fork, and what they hold then is held for ever."""
    program = (
        "import os, random, torch\n"
        "from attnlab.lab.study.fork_server import import_what_runs_need\n"
        "before = torch.random.get_rng_state()\n"
        "import_what_runs_need()\n"
        "assert torch.random.get_rng_state().equal(before)\n"
        "print(len(os.listdir('/proc/self/task')), torch.cuda.is_initialized())\n"
    )
    environment = LocalExecutor(slots=1, threads=1)._environment(
        0, Job("0", "a run", "{}", "{}", "nowhere", 1)
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "1 False\n"


def test_runs_whose_server_is_lost_fail_and_the_next_has_another(tmp_path: Path) -> None:
    recipe = {"name": "digits", "epochs": 400, "batch_size": 50}
    jobs = []
    for study in (small_study(attention="se", recipe=recipe), small_study()):
        store = Store(tmp_path)
        jobs += study_jobs(store, study, store.entries(planned_runs(study)))[:1]
    first, second = (Path(job.directory) for job in jobs)
    until_lost = threading.Thread(target=lambda: lose_the_server(first))
    until_lost.start()
    outcomes = list(LocalExecutor(slots=1, threads=1).execute(jobs))
    until_lost.join()
    found = [(outcome.status, outcome.message) for outcome in outcomes]
    assert found == [("failed", "its process was ended by SIGKILL"), ("done", "")]
    assert (second / "result.json").is_file()
    until(lambda: not is_claimed(first))
    assert "the process that started this run is gone: stopped" in (first / "log.txt").read_text()


def lose_the_server(folder: Path) -> None:
    """Kill what the run in `folder` was forked from, when it has done an epoch."""
    until(lambda: (folder / "metrics.jsonl").exists())
    run = json.loads((folder / "owner.json").read_text())["pid"]
    stat = Path(f"/proc/{run}/stat").read_text()
    os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)


def test_the_present_way_stays_where_there_is_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What CUDA set up does not survive a fork."""
    monkeypatch.setattr("attnlab.lab.study.executors.local.number_of_gpus", lambda: 1)
    executor = LocalExecutor(slots=1, threads=1)
    assert not executor._forks
    store, study = Store(tmp_path), small_study(attention="none")
    jobs = study_jobs(store, study, store.entries(planned_runs(study)))
    (outcome,) = executor.execute(jobs)
    assert outcome.status == "done"
