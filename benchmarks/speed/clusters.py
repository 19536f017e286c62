"""A study of many tiny runs on Ray, whose nodes are killed at random, beside the same study on this
machine: is every run made once, and is it the same run; and what does it cost beside training?

The cluster is Ray's own for tests: a head without a CPU and nodes with one each, all on this
machine, where a node that is killed is gone with its runs as one that loses its power is.
"""

from __future__ import annotations

import hashlib
import json as json_text
import random
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from attnlab.lab.study import Executor, LocalExecutor, RayExecutor, Study, run_study
from attnlab.lab.study.worker import Job, Outcome, work
from attnlab.results import StoredRun
from benchmarks._common import Table, write_json

_TIMES = {"seconds", "train_images_per_second", "data_share"}
"""What differs between two makings of one run."""


def tiny_study(runs: int) -> Study:
    """A study of `runs` runs of two steps each."""
    return Study(
        name=f"tiny-{runs}",
        data={"name": "digits", "train_subset": 40, "test_subset": 20},
        backbone="resnet20",
        attention=["none", "se"] if runs > 1 else "none",
        seeds=max(1, runs // 2),
        threads=1,
        recipe={"name": "digits", "epochs": 1, "warmup_epochs": 0, "batch_size": 20},
        measure={"images": 0, "inference_images": 0},
    )


class Here(Executor):
    """In this process, one after the other: what the runs cost without a queue."""

    def describe(self) -> str:
        return "this process"

    def execute(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        for job in jobs:
            yield work(job)


@dataclass(frozen=True)
class Cost:
    """Of a study that is made."""

    where: str
    runs: int
    seconds: float
    coordinator: float
    """CPU seconds of the process that runs the study, its table included."""
    workers: float
    """CPU seconds of all others, per run."""
    killed: int
    repeated: int
    """Runs that were begun more than once."""
    failed: int


def make(study: Study, out: Path, executor: Executor, where: str, killer: Killer | None) -> Cost:
    """Run the study; every run must have ended once, and be whole."""
    ended: list[Outcome] = []
    began, own, others = time.perf_counter(), time.process_time(), _others()
    if killer is None:
        run_study(study, out, executor, ended.append)
    else:
        # Ray adds nodes in the main thread only.
        with ThreadPoolExecutor(1) as beside:
            made = beside.submit(run_study, study, out, executor, ended.append)
            killer.work_beside(made)
            made.result()
    seconds, own = time.perf_counter() - began, time.process_time() - own
    others = _others() - others
    folders = [Path(outcome.job.directory) for outcome in ended]
    runs = len(study.seeds) * len(study.attention)
    assert Counter(folders).most_common(1)[0][1] == 1, "a run has ended twice"
    assert len(folders) == runs, f"{len(folders)} of {runs} runs have ended"
    done = [each for each in ended if each.status == "done"]
    assert all(StoredRun(Path(each.job.directory)).is_trained for each in done)
    begun = [len(StoredRun(folder).starts) for folder in folders]
    return Cost(
        where,
        runs,
        seconds,
        own,
        others / runs,
        0 if killer is None else killer.killed,
        sum(number > 1 for number in begun),
        len(ended) - len(done),
    )


def _others() -> float:
    """CPU seconds of all processes that this one and its children started. What a killed one used
    is lost, unless its parent waited for it."""
    import psutil

    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = ended.ru_utime + ended.ru_stime
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it may end while it is looked at
            times = process.cpu_times()
            total += times.user + times.system
    return total


class Killer:
    """Kills a node of the cluster every so many seconds, and adds another one."""

    def __init__(self, cluster: Any, nodes: list[Any], every: float) -> None:
        self._cluster, self._nodes, self._every = cluster, nodes, every
        self._numbers = random.Random(0)
        self.killed = 0

    def work_beside(self, made: Future[Any]) -> None:
        """Kill nodes until the study is made."""
        while not wait([made], self._every * self._numbers.uniform(0.5, 1.5)).done:
            self.kill()

    def kill(self) -> None:
        """Kill a node, whichever it is, and add another one."""
        place = self._numbers.randrange(len(self._nodes))
        self._cluster.remove_node(self._nodes[place], allow_graceful=False)
        self.killed += 1
        self._nodes[place] = add_node(self._cluster)


def add_node(cluster: Any) -> Any:
    """A node with one CPU."""
    return cluster.add_node(num_cpus=1, object_store_memory=80 << 20)


def content_of(folder: Path) -> dict[str, str]:
    """What a run is, but for the times that it took: its weights, curve and result."""
    run = StoredRun(folder)
    result = run.result.model_dump(mode="json", exclude=_TIMES)
    curve = [[each.lr, each.train_loss, dict(each.test)] for each in run.history]
    weights = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    return {"weights": weights, "result": json_text.dumps([result, curve], default=str)}


def clusters(
    runs: tuple[int, ...] = (1, 100, 1000),
    local: tuple[int, ...] = (1, 100),
    nodes: int = 4,
    kill_every: float = 30.0,
    folder: Path | None = None,
    json: Path | None = None,
) -> None:
    """A study of tiny runs in one process, on this machine's queue and on Ray: the same runs, and
    what they cost.

    Args:
        runs: numbers of runs; in the study with most of them nodes are killed.
        local: the same on this machine's queue, a process for each run.
        nodes: how many the cluster has, with one CPU each.
        kill_every: seconds between two kills, on average.
        folder: where the runs are written; a temporary one if left out.
        json: where the figures are written.
    """
    import ray
    from ray.cluster_utils import Cluster

    found = []
    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": 80 << 20}
    with tempfile.TemporaryDirectory() as temporary:
        base = folder or Path(temporary)
        queues: list[tuple[str, Executor, int]] = [("here", Here(), number) for number in runs]
        queues += [("local", LocalExecutor(nodes), number) for number in local]
        for where, queue, number in queues:
            out = base / f"{where}-{number}"
            found.append(make(tiny_study(number), out, queue, where, None))
            print(found[-1], flush=True)
        cluster = Cluster(initialize_head=True, head_node_args=head)
        try:
            there = [add_node(cluster) for _ in range(nodes)]
            ray.init(cluster.address, include_dashboard=False, log_to_driver=False)
            for number in runs:
                kills = Killer(cluster, there, kill_every) if number == max(runs) else None
                out = base / f"ray-{number}"
                executor = RayExecutor(cluster.address)
                found.append(make(tiny_study(number), out, executor, "ray", kills))
                print(found[-1], flush=True)
        finally:
            ray.shutdown()
            cluster.shutdown()
        for where, numbers in (("local", local), ("ray", runs)):
            for number in numbers:
                _check_same(base / f"here-{number}", base / f"{where}-{number}", number)
    _table(found).print()
    if json is not None:
        write_json(json, {"clusters": [asdict(each) for each in found]})


def _check_same(out: Path, other: Path, runs: int) -> None:
    names = sorted(path.parent.name for path in out.glob("*/result.json"))
    assert names == sorted(path.parent.name for path in other.glob("*/result.json"))
    differ = [name for name in names if content_of(out / name) != content_of(other / name)]
    print(f"{out.name} and {other.name}: {len(names)} runs in both, {len(differ)} differ")
    assert len(names) == runs
    assert not differ, differ


def _table(found: list[Cost]) -> Table:
    rows = [
        [
            each.where,
            f"{each.runs:,}",
            f"{each.seconds:,.0f}",
            f"{each.coordinator:.1f}",
            f"{1000 * each.coordinator / each.runs:.0f}",
            f"{each.workers:.2f}",
            f"{each.killed}",
            f"{each.repeated}",
            f"{each.failed}",
        ]
        for each in found
    ]
    columns = [
        "on",
        "runs",
        "s",
        "coordinator, CPU s",
        "per run, CPU ms",
        "workers per run, CPU s",
        "nodes killed",
        "runs begun again",
        "runs lost",
    ]
    return Table("Studies of tiny runs", columns, rows)
