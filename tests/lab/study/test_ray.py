"""A real Ray cluster of two nodes on this machine, one of which is killed in the middle."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from tests.lab.study._small import small_study

from attnlab._errors import InputError
from attnlab.lab.study import RayExecutor, planned_runs, run_study
from attnlab.lab.training import train

# Ray leaves sockets and processes to its own clean-up at exit.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:.*accelerator.*:FutureWarning"),
]


@pytest.fixture
def cluster() -> Iterator[Any]:
    ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'attnlab[ray]'")
    from ray.cluster_utils import Cluster

    nodes = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "include_dashboard": False, "object_store_memory": 80 << 20},
    )
    try:
        yield nodes
    finally:
        ray.shutdown()
        nodes.shutdown()


def test_a_study_survives_the_loss_of_a_node(cluster: Any, tmp_path: Path) -> None:
    lost = cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
    recipe = {"name": "digits", "epochs": 4, "batch_size": 50}
    study = small_study(recipe=recipe)  # two runs: one on each node
    runs = planned_runs(study)
    killed: list[str] = []

    def lose_the_node() -> None:
        """When both runs have an epoch behind them, kill the node that is not the head."""
        files = [tmp_path / run.run_id / "metrics.jsonl" for run in runs]
        while not all(file.exists() for file in files):
            time.sleep(0.02)
        before = {run.run_id: process_of(tmp_path / run.run_id) for run in runs}
        cluster.remove_node(lost, allow_graceful=False)
        while not killed:
            killed.extend(name for name, process in before.items() if not alive(process))
            time.sleep(0.02)

    killer = threading.Thread(target=lose_the_node, daemon=True)
    killer.start()
    outcomes = run_study(study, tmp_path, RayExecutor(cluster.address))
    killer.join(timeout=30)
    assert sorted(outcome.status for outcome in outcomes) == ["done", "done"]
    assert len(killed) >= 1
    for run in runs:
        straight = tmp_path / "straight" / run.run_id
        train(run.config, straight, threads=1, progress=lambda _: None)
        found, expected = (
            load_file(folder / "model.safetensors") for folder in (tmp_path / run.run_id, straight)
        )
        assert all(found[name].equal(expected[name]) for name in expected)


def test_the_loss_of_the_head_ends_within_a_minute(cluster: Any, tmp_path: Path) -> None:
    recipe = {"name": "digits", "epochs": 400, "batch_size": 50}
    study = small_study(attention="none", recipe=recipe)
    (run,) = planned_runs(study)
    address = cluster.address  # not known any more when the head is gone
    lost: list[float] = []

    def lose_the_head() -> None:
        while not (tmp_path / run.run_id / "metrics.jsonl").exists():
            time.sleep(0.05)
        lost.append(time.monotonic())
        cluster.head_node.kill_gcs_server(check_alive=False)

    killer = threading.Thread(target=lose_the_head, daemon=True)
    killer.start()
    with pytest.raises(InputError) as error:
        run_study(study, tmp_path, RayExecutor(address))
    assert time.monotonic() - lost[0] < 60
    assert str(error.value) == (
        f"The head of the Ray cluster at {address} does not answer any more. What is "
        f"finished is stored. Start the cluster again and run the same command: it resumes from "
        f"the last checkpoints."
    )
    assert list((tmp_path / run.run_id / "checkpoints").glob("epoch-*.pt"))


def process_of(directory: Path) -> int:
    return int(json.loads((directory / "owner.json").read_text())["pid"])


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_workers_do_not_import_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="ray is not installed: pip install 'attnlab[ray]'")
    here = tmp_path / "here"
    here.mkdir()
    for name in ("attnlab", "pydantic"):
        text = f"open({str(tmp_path / 'executed')!r}, 'a').write({name!r})\n"
        (here / f"{name}.py").write_text(text)
    monkeypatch.chdir(here)
    (outcome,) = run_study(small_study(attention="none"), tmp_path / "runs", RayExecutor())
    assert outcome.status == "done", outcome.message
    assert not (tmp_path / "executed").exists()
    assert Path.cwd() == here
