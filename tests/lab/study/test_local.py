"""Executors without their processes: how an end is read, what the queue does, what is said."""

from __future__ import annotations

import builtins
import signal
import socket
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from attnlab._errors import OptionError
from attnlab.lab.study import LocalExecutor, RayExecutor
from attnlab.lab.study.executors.local import _gpus, _outcome
from attnlab.lab.study.executors.ray import _Head, _HeadLostError
from attnlab.lab.study.store import write_failure
from attnlab.lab.study.worker import BUSY, Job
from attnlab.results import StoredRun


def job_in(folder: Path) -> Job:
    return Job("id", "label", "{}", "{}", str(folder), 1)


@pytest.mark.parametrize("code", [-signal.SIGTERM, 128 + signal.SIGTERM])
def test_a_signal_is_named_as_the_system_and_as_a_shell_write_it(code: int, tmp_path: Path) -> None:
    outcome = _outcome(job_in(tmp_path), code)
    assert (outcome.status, outcome.message) == ("failed", "its process was ended by SIGTERM")


def test_an_end_without_a_signal_has_the_reason_of_the_run(tmp_path: Path) -> None:
    job = job_in(tmp_path)
    assert _outcome(job, 0).status == "done"
    assert _outcome(job, BUSY).status == "busy"
    outcome = _outcome(job, 1)
    assert (outcome.status, outcome.message) == (
        *("failed", "its process ended with code 1; see log.txt"),
    )
    write_failure(tmp_path, "the disk is full")
    assert _outcome(job, 1).message == "the disk is full"


def test_slots_divide_cores_and_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    for module in ("executors.local", "threads"):
        monkeypatch.setattr(f"attnlab.lab.study.{module}.cores", lambda: 8)
    assert (LocalExecutor().slots, LocalExecutor().threads) == (8, 1)
    assert LocalExecutor(slots=3).threads == 2
    monkeypatch.setattr("attnlab.lab.study.executors.local.number_of_gpus", lambda: 2)
    assert (LocalExecutor().slots, LocalExecutor().threads) == (2, 4)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [_gpus(slot, 2, 1) for slot in range(3)] == ["0", "1", "0"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    assert [_gpus(slot, 2, 1) for slot in range(3)] == ["4", "7", "4"]


def test_a_run_on_several_devices_has_as_many_cores_and_gpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for module in ("executors.local", "threads"):
        monkeypatch.setattr(f"attnlab.lab.study.{module}.cores", lambda: 8)
    executor = LocalExecutor(devices=2)
    assert (executor.slots, executor.threads) == (4, 1)
    assert LocalExecutor(slots=2, devices=2).threads == 2
    assert LocalExecutor(devices=16).slots == 1
    monkeypatch.setattr("attnlab.lab.study.executors.local.number_of_gpus", lambda: 4)
    assert LocalExecutor(devices=2).slots == 2
    assert [_gpus(slot, 4, 2) for slot in range(3)] == ["0,1", "2,3", "0,1"]
    assert _gpus(0, 4, 8) == "0,1,2,3"


def test_a_run_has_its_threads_and_keeps_its_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the user set about memory stays."""
    for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    given = [LocalExecutor(slots=1)._environment(0, replace(job_in(tmp_path), threads=3))]
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "1")
    given.append(LocalExecutor(slots=1)._environment(0, replace(job_in(tmp_path), threads=3)))
    names = ("OMP_NUM_THREADS", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")
    assert [tuple(env[name] for name in names) for env in given] == [
        ("3", "17179869184", "33554432"),
        ("3", "1", "33554432"),
    ]


class Made:
    """A process that ends with `code` after it was asked so many times."""

    def __init__(self, asked: int, code: int) -> None:
        self.left, self.code = asked, code
        self.returncode: int | None = None
        self.stopped = 0

    def poll(self) -> int | None:
        self.left -= 1
        if self.left < 0:
            self.returncode = self.code
        return self.returncode

    def terminate(self) -> None:
        self.stopped += 1

    def wait(self, timeout: float | None = None) -> int:
        if self.stopped < 2:  # does not hear the first signal
            raise subprocess.TimeoutExpired("run", timeout or 0)
        return -signal.SIGTERM


def test_as_many_runs_at_a_time_as_slots_and_each_slot_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four runs in two slots: the second ends before the first, and the third fails."""
    jobs = [replace(job_in(tmp_path / name), run_id=name) for name in "abcd"]
    made = dict(zip("abcd", (Made(3, 0), Made(0, 0), Made(1, 1), Made(0, 0)), strict=True))
    begun: list[tuple[str, int]] = []

    def start(self: LocalExecutor, job: Job, slot: int, servers: object) -> Made:
        del servers
        begun.append((job.run_id, slot))
        assert sum(made[name].returncode is None for name, _ in begun) <= self.slots
        return made[job.run_id]

    monkeypatch.setattr(LocalExecutor, "_start", start)
    monkeypatch.setattr("attnlab.lab.study.executors.local._POLL", 0)
    outcomes = list(LocalExecutor(slots=2).execute(jobs))
    assert begun == [("a", 0), ("b", 1), ("c", 1), ("d", 1)]
    assert [(each.job.run_id, each.status) for each in outcomes] == [
        *(("b", "done"), ("c", "failed"), ("a", "done"), ("d", "done")),
    ]
    assert not any(each.stopped for each in made.values())


def test_runs_that_go_on_are_stopped_with_their_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked again if they do not end; those that have ended are left alone."""
    jobs = [replace(job_in(tmp_path / name), run_id=name) for name in "ab"]
    made = {"a": Made(0, 0), "b": Made(100, 0)}
    monkeypatch.setattr(LocalExecutor, "_start", lambda _, job, *__: made[job.run_id])
    running = LocalExecutor(slots=2).execute(jobs)
    assert next(running).job.run_id == "a"
    running.close()
    assert [each.stopped for each in made.values()] == [0, 2]


@pytest.mark.parametrize(
    ("gpus", "where"), [(0, "no GPU"), (1, "1 GPU"), (4, "4 GPUs")], ids=["none", "one", "four"]
)
def test_a_machine_says_how_many_at_a_time(
    gpus: int, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attnlab.lab.study.executors.local.number_of_gpus", lambda: gpus)
    assert LocalExecutor(slots=3).describe() == f"this machine: 3 at a time, {where}"
    assert LocalExecutor(slots=3).at_a_time == 3


def test_ray_says_where_and_with_what(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnlab.lab.study.executors.ray._import_ray", lambda: None)
    assert RayExecutor("10.0.0.1:6379", cpus=2, gpus=1).describe() == (
        "Ray (10.0.0.1:6379): 2 CPUs and 1 GPU per run"
    )
    assert RayExecutor().describe() == (
        "Ray (as RAY_ADDRESS says, or this machine): 1 CPU and 0 GPUs per run"
    )
    assert (RayExecutor(cpus=3).threads, RayExecutor().threads_asked) == (3, True)


class Cluster:
    """A Ray that is there already and does each task when it is asked for."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def is_initialized(self) -> bool:
        return True

    def remote(self, work: object) -> Any:
        del work
        return self

    def options(self, **given: Any) -> Any:
        self.asked.append(given)
        return SimpleNamespace(remote=lambda job: job.label)

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(gcs_address="127.0.0.1:9")  # where nobody answers

    def wait(self, given: list[str], num_returns: int, timeout: float) -> Any:
        del timeout
        return given[:num_returns], given[num_returns:]

    def get(self, reference: str) -> str:
        return f"{reference} is done"


def test_a_task_of_ray_has_what_its_devices_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster()
    monkeypatch.setattr("attnlab.lab.study.executors.ray._import_ray", lambda: cluster)
    jobs = [replace(job_in(tmp_path), label=str(n), devices=n) for n in (1, 3)]
    assert list(RayExecutor(cpus=2, gpus=0.5).execute(jobs)) == ["1 is done", "3 is done"]
    assert cluster.asked == [
        {
            "num_cpus": 2 * devices,
            "num_gpus": 0.5 * devices,
            "max_retries": 3,
            "scheduling_strategy": "SPREAD",
        }
        for devices in (1, 3)
    ]


def test_a_head_is_lost_after_twenty_seconds_without_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr("attnlab.lab.study.executors.ray.time.monotonic", lambda: now[0])
    head = _Head("127.0.0.1:9")
    for seconds in (0.0, 20.0):
        now[0] = 100.0 + seconds
        head.check()
    now[0] = 120.5
    with pytest.raises(_HeadLostError, match="127"):
        head.check()
    with socket.create_server(("127.0.0.1", 0)) as server:
        head.address = f"127.0.0.1:{server.getsockname()[1]}"
        head.check()
    assert head.answered == 120.5


def test_a_task_that_is_given_up_leaves_its_reason(tmp_path: Path) -> None:
    ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'attnlab[ray]'")

    class Given:
        exceptions = ray.exceptions

        @staticmethod
        def get(reference: object) -> None:
            del reference
            raise ray.exceptions.WorkerCrashedError

    executor = RayExecutor()
    executor._ray = Given
    job = Job("id", "label", "{}", "{}", str(tmp_path / "run"), 1)
    outcome = executor._outcome(object(), job)
    assert outcome.status == "failed"
    assert outcome.message.startswith("Ray gave up after 3 retries: The worker died unexpectedly")
    failure = StoredRun(tmp_path / "run").failure
    assert failure is not None
    assert failure.error == outcome.message


def test_without_ray_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name == "ray":
            raise ImportError(name)
        return original(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(OptionError) as error:
        RayExecutor()
    assert str(error.value) == (
        "--on ray needs ray, which is not installed: pip install 'attnlab[ray]'. Or leave --on ray "
        "out to work on this machine."
    )


def test_threads_are_asked_for_in_the_call_or_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert not LocalExecutor().threads_asked
    assert LocalExecutor(threads=1).threads_asked
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert LocalExecutor().threads_asked


def test_slots_are_whole_numbers_of_one_at_least() -> None:
    for wrong in ({"slots": 0}, {"threads": 0}, {"devices": 0}, {"slots": 1.5}):
        with pytest.raises(OptionError):
            LocalExecutor(**wrong)  # type: ignore[arg-type]
