"""Slurm through submitit: a job per run. A job that is preempted or times out is queued again and
goes on from its checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attnlab._errors import OptionError
from attnlab._words import counted
from attnlab.lab.study.executors._base import Executor, check_reach, missing_package
from attnlab.lab.study.worker import Job, Outcome, work

Value = int | float | str | bool


class Submission:
    """What submitit sends to the cluster, and sends again when Slurm takes the node back."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def __call__(self) -> Outcome:
        return work(self.job)

    def checkpoint(self) -> Any:
        import submitit

        return submitit.helpers.DelayedSubmission(self)


class SlurmExecutor(Executor):
    """`parameters` go to submitit: `{"slurm_partition": "gpu", "timeout_min": 720}`.

    `cpus` and `gpus` are for each device of a run, all of which are on one node. `cluster` is
    submitit's: `"slurm"`, or `"local"` for processes on this machine, to try it out.
    """

    def __init__(
        self,
        folder: Path,
        cpus: int = 4,
        gpus: int = 0,
        parameters: Mapping[str, Value] | None = None,
        cluster: str = "slurm",
    ) -> None:
        submitit = _import_submitit()
        self.cpus = cpus
        self.gpus = gpus
        self.cluster = cluster
        self._parameters = dict(parameters or {})
        try:
            self._executor = submitit.AutoExecutor(folder=folder, cluster=cluster)
            self._executor.update_parameters(
                **{
                    "name": "attnlab",
                    "cpus_per_task": cpus,
                    "gpus_per_node": gpus,
                    "timeout_min": 24 * 60,
                    **(parameters or {}),
                }
            )
        except (NameError, TypeError, RuntimeError) as error:
            raise OptionError(f"submitit: {error}") from None

    @property
    def threads(self) -> int:
        return self.cpus

    @property
    def threads_asked(self) -> bool:
        return True

    def describe(self) -> str:
        each = f"{counted(self.cpus, 'CPU')} and {counted(self.gpus, 'GPU')}"
        return f"submitit ({self.cluster}): {each} per run"

    def execute(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        check_reach(jobs)
        import submitit

        for devices in {job.devices for job in jobs}:  # of one study: one number
            needed = {"cpus_per_task": self.cpus * devices, "gpus_per_node": self.gpus * devices}
            self._executor.update_parameters(**{**needed, **self._parameters})
        with self._executor.batch():  # one job array, not a flood of single jobs
            submitted = [self._executor.submit(Submission(job)) for job in jobs]
        belongs = {id(handle): job for handle, job in zip(submitted, jobs, strict=True)}
        for handle in submitit.helpers.as_completed(submitted, poll_frequency=2):
            yield _outcome(handle, belongs[id(handle)])


def _outcome(handle: Any, job: Job) -> Outcome:
    import submitit

    try:
        outcome: Outcome = handle.result()
    except submitit.core.utils.UncompletedJobError as error:
        first = str(error).strip().partition("\n")[0]
        return Outcome(job, "failed", f"job {handle.job_id}: {first}")
    return outcome


def _import_submitit() -> Any:
    try:
        import submitit
    except ImportError:
        raise missing_package(
            "submitit", "slurm", "leave --on slurm out to work on this machine"
        ) from None
    return submitit
