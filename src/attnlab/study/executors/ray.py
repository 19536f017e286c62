"""A Ray cluster: a task per run. When a node is lost, its runs go on elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from attnlab.study.executors._base import Executor, missing_package
from attnlab.study.worker import Job, Outcome, work

_RETRIES = 3


class RayExecutor(Executor):
    """`address` as for `ray.init`: of a cluster, `"auto"`, or None for RAY_ADDRESS or this machine.

    The directories of the runs must be on storage that all nodes share.
    """

    def __init__(self, address: str | None = None, cpus: int = 1, gpus: float = 0) -> None:
        self.address = address
        self.cpus = cpus
        self.gpus = gpus
        self._ray = _import_ray()

    def describe(self) -> str:
        where = self.address or "as RAY_ADDRESS says, or this machine"
        return f"Ray ({where}): {self.cpus} CPUs and {self.gpus:g} GPUs per run"

    def execute(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        ray = self._ray
        ours = not ray.is_initialized()
        if ours:
            ray.init(address=self.address, include_dashboard=False, log_to_driver=False)
        try:
            task = ray.remote(work).options(
                num_cpus=self.cpus,
                num_gpus=self.gpus,
                max_retries=_RETRIES,
                scheduling_strategy="SPREAD",
            )
            pending = {task.remote(job, self.cpus): job for job in jobs}
            while pending:
                ready, _ = ray.wait(list(pending), num_returns=1)
                for reference in ready:
                    yield self._outcome(reference, pending.pop(reference))
        finally:
            if ours:
                ray.shutdown()

    def _outcome(self, reference: Any, job: Job) -> Outcome:
        try:
            outcome: Outcome = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            first = str(error).strip().partition("\n")[0]
            return Outcome(job, "failed", f"Ray gave up after {_RETRIES} retries: {first}")
        return outcome


def _import_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise missing_package("ray", "ray", "leave --on ray out to work on this machine") from None
    return ray
