"""Slurm's path through submitit, whose local executor takes the place of the cluster."""

from __future__ import annotations

import builtins
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from tests.lab.study._small import small_study

from attnlab._errors import OptionError
from attnlab.lab.study import SlurmExecutor, planned_runs, run_study
from attnlab.lab.study.executors.slurm import Submission
from attnlab.lab.study.worker import Job, Outcome
from attnlab.results import StoredRun

REASON = "submitit is not installed: pip install 'attnlab[slurm]'"


# submitit leaves the pipes of its processes to the garbage collector.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_jobs_run_and_failures_come_back(tmp_path: Path) -> None:
    pytest.importorskip("submitit", reason=REASON)
    study = small_study(
        attention=["none", {"gate": "se", "where": "stages:9"}],
        recipe={"name": "digits", "epochs": 1, "warmup_epochs": 0, "batch_size": 50},
    )
    executor = SlurmExecutor(tmp_path / "slurm", cpus=1, cluster="local")
    outcomes = {outcome.job.label: outcome for outcome in run_study(study, tmp_path, executor)}
    good, bad = (outcomes[str(run)] for run in planned_runs(study))
    assert (good.status, bad.status) == ("done", "failed")
    assert bad.message.startswith("where='stages:9': 9 does not exist in this network.")
    assert StoredRun(Path(good.job.directory)).is_trained


def test_a_preempted_job_is_queued_again() -> None:
    submitit = pytest.importorskip("submitit", reason=REASON)
    submission = Submission(Job("id", "label", "{}", "{}", "directory", 2))
    again = submission.checkpoint()
    assert isinstance(again, submitit.helpers.DelayedSubmission)
    assert again.function is submission


def test_what_is_asked_of_the_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cores and GPUs for each device of a run, unless the user says other numbers."""
    submitit = pytest.importorskip("submitit", reason=REASON)
    asked: list[dict[str, Any]] = []

    class Cluster:
        def __init__(self, folder: Path, cluster: str) -> None:
            asked.append({"folder": folder, "cluster": cluster})

        def update_parameters(self, **given: Any) -> None:
            asked.append(given)

    monkeypatch.setattr(submitit, "AutoExecutor", Cluster)
    monkeypatch.setattr(Cluster, "batch", lambda _: nullcontext(), raising=False)
    monkeypatch.setattr(Cluster, "submit", lambda _, given: Done(given.job), raising=False)
    monkeypatch.setattr(submitit.helpers, "as_completed", lambda given, **_: given)
    executor = SlurmExecutor(tmp_path)
    assert (executor.threads, executor.threads_asked) == (4, True)
    assert executor.describe() == "submitit (slurm): 4 CPUs and 0 GPUs per run"
    assert asked == [
        {"folder": tmp_path, "cluster": "slurm"},
        {"name": "attnlab", "cpus_per_task": 4, "gpus_per_node": 0, "timeout_min": 1440},
    ]
    job = Job("id", "label", "{}", "{}", str(tmp_path), 2, devices=3)
    assert [each.job for each in SlurmExecutor(tmp_path, 2, 1).execute([job])] == [job]
    assert asked[-1] == {"cpus_per_task": 6, "gpus_per_node": 3}
    own = SlurmExecutor(tmp_path, 2, 1, {"gpus_per_node": 8, "timeout_min": 5})
    list(own.execute([job]))
    assert asked[-1] == {"cpus_per_task": 6, "gpus_per_node": 8, "timeout_min": 5}


class Done:
    """A job that ended at once."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def result(self) -> Outcome:
        return Outcome(self.job, "done")


def test_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("submitit", reason=REASON)
    with pytest.raises(OptionError, match=r"^submitit: .*slurm_partitio"):
        SlurmExecutor(tmp_path, parameters={"slurm_partitio": "gpu"}, cluster="local")
    original = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name == "submitit":
            raise ImportError(name)
        return original(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(OptionError) as error:
        SlurmExecutor(tmp_path)
    assert str(error.value) == (
        "--on slurm needs submitit, which is not installed: pip install 'attnlab[slurm]'. Or leave "
        "--on slurm out to work on this machine."
    )
