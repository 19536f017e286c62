"""Runs of several processes through the executors, which go on when they are stopped or lost.
Processes on the CPU stand in for GPUs."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from safetensors.torch import load_file
from tests.lab.study._small import small_study
from tests.lab.study.test_ray import alive, cluster, process_of

from attnlab._errors import InputError
from attnlab.lab.study import (
    LocalExecutor,
    RayExecutor,
    SlurmExecutor,
    Study,
    planned_runs,
    run_study,
)
from attnlab.lab.training import train
from attnlab.results import StoredRun

__all__ = ["cluster"]

pytestmark = [
    pytest.mark.slow,
    # Ray and submitit leave sockets, pipes and processes to their own clean-up at exit.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:.*accelerator.*:FutureWarning"),
]


def study_of(epochs: int = 2) -> Study:
    recipe = {"name": "digits", "epochs": epochs, "warmup_epochs": 0, "batch_size": 50}
    return small_study(attention="se", recipe=recipe, devices=2, threads=1)


def straight(study: Study, folder: Path) -> Path:
    """The one run of the study, in two processes that nothing stops."""
    (run,) = planned_runs(study)
    train(run.config, folder, threads=1, devices=2, progress=quiet)
    return folder


def quiet(record: object) -> None:
    del record


def assert_same(folder: Path, other: Path) -> None:
    found, expected = (load_file(each / "model.safetensors") for each in (folder, other))
    assert all(found[name].equal(expected[name]) for name in expected)


def test_a_run_on_two_devices_is_that_of_two_processes(tmp_path: Path) -> None:
    study = study_of()
    (run,) = planned_runs(study)
    (outcome,) = run_study(study, tmp_path, LocalExecutor(slots=1, devices=2))
    assert outcome.status == "done", outcome.message
    assert_same(Path(outcome.job.directory), straight(study, tmp_path / "straight"))
    # Its batch norms saw halves, so it is not the run of one process.
    alone = tmp_path / "alone"
    train(run.config, alone, threads=1, progress=quiet)
    assert StoredRun(alone).result.run_id != run.run_id
    with pytest.raises(InputError, match="devices were 2, are 1"):
        train(run.config, outcome.job.directory, threads=1, progress=quiet)


def test_in_a_job_of_slurm_the_processes_are_started_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of its variables Fabric would take that there is a task of Slurm's for each device."""
    pytest.importorskip(
        "submitit", reason="submitit is not installed: pip install 'attnlab[slurm]'"
    )
    study = study_of(1)
    executor = SlurmExecutor(tmp_path / "slurm", cpus=1, cluster="local")
    asked: list[dict[str, Any]] = []
    update = executor._executor.update_parameters

    def updated(**parameters: Any) -> None:
        asked.append(parameters)
        update(**parameters)

    monkeypatch.setattr(executor._executor, "update_parameters", updated)
    said = {"NTASKS": "1", "JOB_NAME": "attnlab", "PROCID": "0", "LOCALID": "0"}
    for name, value in said.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    (outcome,) = run_study(study, tmp_path, executor)
    assert outcome.status == "done", outcome.message
    assert asked == [{"cpus_per_task": 2, "gpus_per_node": 0}]
    for name in said:
        monkeypatch.delenv(f"SLURM_{name}")
    assert_same(Path(outcome.job.directory), straight(study, tmp_path / "straight"))


def test_a_run_on_two_devices_survives_the_loss_of_its_node(cluster: Any, tmp_path: Path) -> None:
    """The head has one CPU and the run needs two: it is on one of the other nodes."""
    nodes = [cluster.add_node(num_cpus=2, object_store_memory=80 << 20) for _ in range(2)]
    study = study_of(4)
    (run,) = planned_runs(study)
    folder = tmp_path / run.run_id
    killed: list[int] = []

    def lose_the_node() -> None:
        while not (folder / "metrics.jsonl").exists():
            time.sleep(0.02)
        before = process_of(folder)
        raylet = psutil.Process(before).ppid()
        (node,) = (n for n in nodes if n.all_processes["raylet"][0].process.pid == raylet)
        cluster.remove_node(node, allow_graceful=False)
        while alive(before):
            time.sleep(0.02)
        killed.append(before)

    killer = threading.Thread(target=lose_the_node, daemon=True)
    killer.start()
    (outcome,) = run_study(study, tmp_path, RayExecutor(cluster.address))
    killer.join(timeout=30)
    assert outcome.status == "done", outcome.message
    assert killed
    assert process_of(folder) != killed[0]
    assert_same(folder, straight(study, tmp_path / "straight"))
