"""Executors without their processes: how an end is read, which GPUs a slot has, what is said."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from attnlab._errors import OptionError
from attnlab.lab.study import LocalExecutor, RayExecutor
from attnlab.lab.study.executors.local import _gpus, _outcome
from attnlab.lab.study.store import write_failure
from attnlab.lab.study.worker import BUSY, Job


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


@pytest.mark.parametrize(
    ("slot", "number", "devices", "visible", "expected"),
    [
        (0, 4, 1, None, "0"),
        (5, 4, 1, None, "1"),
        (1, 4, 2, None, "2,3"),
        (1, 3, 2, None, "2,0"),
        (0, 2, 3, None, "0,1"),
        (1, 2, 1, "7,5", "5"),
    ],
)
def test_a_slot_has_gpus_of_its_own(
    slot: int,
    number: int,
    devices: int,
    visible: str | None,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert _gpus(slot, number, devices) == expected


def test_ray_says_where_and_with_what(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnlab.lab.study.executors.ray._import_ray", lambda: None)
    assert RayExecutor("10.0.0.1:6379", cpus=2, gpus=1).describe() == (
        "Ray (10.0.0.1:6379): 2 CPUs and 1 GPU per run"
    )
    assert RayExecutor().describe().startswith("Ray (as RAY_ADDRESS says, or this machine): 1 CPU")


def test_slots_are_whole_numbers_of_one_at_least() -> None:
    for wrong in ({"slots": 0}, {"threads": 0}, {"devices": 0}, {"slots": 1.5}):
        with pytest.raises(OptionError):
            LocalExecutor(**wrong)  # type: ignore[arg-type]
