"""Slurm's path through submitit, whose local executor takes the place of the cluster."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest
from tests.lab.study._small import small_study

from attnlab._errors import OptionError
from attnlab.lab.study import SlurmExecutor, planned_runs, run_study
from attnlab.lab.study.executors.slurm import Submission
from attnlab.lab.study.worker import Job
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
