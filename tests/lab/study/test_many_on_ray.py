"""A study of more runs than nodes on Ray, nodes of which are killed: every run ends once and is the
run that one process makes. `python -m benchmarks.speed clusters` does it with a thousand."""

from __future__ import annotations

import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from benchmarks.speed.clusters import Here, Killer, add_node, content_of, make, tiny_study

from attnlab.lab.study import RayExecutor

pytestmark = [
    pytest.mark.slow,
    # Ray leaves sockets and processes to its own clean-up at exit.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:.*accelerator.*:FutureWarning"),
]
RUNS = 12


class OnTheWay(Killer):
    """Kills a node when a third of the runs are finished, and another at two thirds."""

    out: Path

    def work_beside(self, made: Future[Any]) -> None:
        for number in (RUNS // 3, 2 * RUNS // 3):
            while not made.done() and len(list(self.out.glob("*/result.json"))) < number:
                time.sleep(0.02)
            self.kill()


def test_every_run_is_made_once_though_nodes_are_killed(tmp_path: Path) -> None:
    ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'attnlab[ray]'")
    from ray.cluster_utils import Cluster

    study = tiny_study(RUNS)
    make(study, tmp_path / "here", Here(), "here", None)
    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": 80 << 20}
    nodes = Cluster(initialize_head=True, head_node_args=head)
    try:
        killer = OnTheWay(nodes, [add_node(nodes) for _ in range(2)], every=0)
        killer.out = tmp_path / "ray"
        ray.init(nodes.address, include_dashboard=False, log_to_driver=False)
        # Refuses runs that end twice, or not at all, or are not whole.
        cost = make(study, killer.out, RayExecutor(nodes.address), "ray", killer)
    finally:
        ray.shutdown()
        nodes.shutdown()
    assert (cost.runs, cost.failed, cost.killed) == (RUNS, 0, 2)
    found = sorted(path.parent.name for path in killer.out.glob("*/result.json"))
    assert len(found) == RUNS
    for name in found:
        assert content_of(killer.out / name) == content_of(tmp_path / "here" / name)
