"""Trackers by name: in calls, in study files, and what is refused."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.lab.tracking.test_trackers import config, quiet

from attnlab import AttnlabError
from attnlab.lab.study import Study, load_study
from attnlab.lab.study.grid import planned_runs
from attnlab.lab.study.run import study_jobs
from attnlab.lab.study.store import Store
from attnlab.lab.study.worker import work
from attnlab.lab.tracking import TrackConfig, TrackedRun, Tracker, list_trackers
from attnlab.lab.tracking.registry import TRACKERS
from attnlab.lab.training import train

FILE = """
data = { name = "digits", train_subset = 64, test_subset = 32 }
backbone = "resnet20"
attention = "none"
seeds = 1
recipe = { name = "digits", epochs = 2, batch_size = 32 }
measure = { images = 0, inference_images = 0 }
"""


def study(tmp_path: Path, line: str = "") -> Study:
    file = tmp_path / "small.toml"
    file.write_text(FILE + line)
    return load_study(file)


def test_off_by_default() -> None:
    assert list_trackers() == ("csv", "tensorboard", "wandb", "mlflow")
    assert Study.model_fields["track"].default == ()


def test_in_a_study_file(tmp_path: Path) -> None:
    plain = study(tmp_path)
    tracked = study(
        tmp_path, 'track = ["csv", { name = "wandb", options = { project = "demo" } }]\n'
    )
    assert tracked.track == (
        TrackConfig(name="csv"),
        TrackConfig(name="wandb", options={"project": "demo"}),
    )
    assert study(tmp_path, 'track = "csv"\n').track == (TrackConfig(name="csv"),)
    # Not part of a run: the same one, whoever looks on.
    assert [r.run_id for r in planned_runs(tracked)] == [r.run_id for r in planned_runs(plain)]


def test_a_job_of_a_study_has_its_trackers(tmp_path: Path) -> None:
    made = study(tmp_path, 'track = "csv"\n')
    store = Store(tmp_path / "runs")
    store.out.mkdir()
    (job,) = study_jobs(store, made, store.entries(planned_runs(made)))
    job = type(job)(**json.loads(job.to_json()))
    assert work(job).status == "done"
    assert (Path(job.directory) / "curves.csv").read_text().startswith("epoch,lr,train_loss,")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            'track = "tensorbord"',
            "Unknown tracker 'tensorbord'. Did you mean 'tensorboard'? Expected one of: csv, "
            "tensorboard, wandb, mlflow.",
        ),
        ('track = ["csv", "csv"]', "Expected each tracker once but got csv, csv."),
        (
            'track = { name = "wandb", options = { projekt = "a" } }',
            "Tracker 'wandb' has no option 'projekt'. Did you mean 'project'? It takes: project, "
            "entity, online.",
        ),
        (
            'track = { name = "wandb", options = { online = "yes" } }',
            "Tracker 'wandb': expected online to be true or false but got 'yes'.",
        ),
        (
            'track = { name = "csv", options = { file = "a" } }',
            "Tracker 'csv' has no option 'file'. It takes no options.",
        ),
        (
            'track = { name = "csv", project = "a" }',
            "Unknown setting 'project' of track. Expected one of: name, options.",
        ),
    ],
)
def test_refusals(line: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(AttnlabError) as caught:
        study(tmp_path, line)
    assert str(caught.value) == f"{tmp_path / 'small.toml'}: {message}"


def test_a_missing_package_before_anything_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec

    def without(name: str, package: str | None = None) -> Any:
        return None if name == "wandb" else find(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    with pytest.raises(AttnlabError) as caught:
        train(config(2), tmp_path / "run", track=["wandb"])
    assert str(caught.value) == (
        "This needs wandb, which is not installed: pip install 'attnlab[wandb]'."
    )
    assert not (tmp_path / "run").exists()


class Failing(Tracker):
    """Fails when it is opened, or when it writes."""

    def __init__(self, run: TrackedRun, at: str = "write") -> None:
        del run
        if at == "open":
            raise OSError("no room")

    def write(self, history: Sequence[Any]) -> None:
        if history:
            raise OSError("no room")

    def close(self, finished: bool) -> None:
        raise AssertionError(f"it is left out, finished {finished}")


def test_one_that_fails_while_the_run_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(TRACKERS, "failing", Failing)
    result = train(config(2), tmp_path, progress=quiet, track=["failing", "csv"])
    assert result.epochs == 2
    assert (tmp_path / "curves.csv").read_text().count("\n") == 3
    assert capsys.readouterr().err == (
        "The tracker 'failing' failed, and its curves end here; the run goes on. OSError: no room\n"
    )


def test_one_that_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TRACKERS, "failing", Failing)
    given = TrackConfig(name="failing", options={"at": "open"})
    with pytest.raises(AttnlabError) as caught:
        train(config(2), tmp_path, progress=quiet, track=[given])
    assert str(caught.value) == (
        "The tracker 'failing' cannot be opened. OSError: no room Correct that, or leave it out of "
        "'track'."
    )
    assert not (tmp_path / "metrics.jsonl").exists()
