"""Threads decide the bits of the weights, so they are part of a run; versions are said."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
import torch
from tests.lab.pages.simulated import prove, simulate
from tests.lab.study._small import HereExecutor, small_study
from tests.lab.training.small import small

from attnlab._errors import InputError
from attnlab.cli import main
from attnlab.lab.pages.alerts import plan_alerts
from attnlab.lab.study import (
    LocalExecutor,
    Store,
    Study,
    planned_runs,
    run_study,
    show_study,
    study_status,
)
from attnlab.lab.study.current import refresh
from attnlab.lab.study.history import runs_with_other_threads
from attnlab.lab.study.run import with_threads_of
from attnlab.lab.study.show import study_footnotes
from attnlab.lab.study.threads import default_threads
from attnlab.lab.training import identify, train
from attnlab.results import StoredRun
from attnlab.results.record import read_record

TOML = """
data = { name = "digits", train_subset = 100, test_subset = 50 }
backbone = "resnet20"
attention = "none"
seeds = 1
recipe = { name = "digits", epochs = 1, batch_size = 50, warmup_epochs = 0 }
measure = { images = 0, inference_images = 0 }
"""


def one_run(**changes: object) -> Study:
    recipe = {"name": "digits", "epochs": 1, "batch_size": 50, "warmup_epochs": 0}
    return small_study(attention="none", recipe=recipe, **changes)


@pytest.mark.parametrize(("given", "expected"), [("1", 1), ("3", 3), ("2,4", 2), ("x", 4)])
def test_omp_num_threads_is_respected(
    given: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attnlab.lab.study.threads.cores", lambda: 4)
    monkeypatch.setenv("OMP_NUM_THREADS", given)
    assert LocalExecutor(slots=1).threads == expected
    assert LocalExecutor(slots=1, threads=5).threads == 5


def test_a_study_without_threads_has_those_of_its_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("attnlab.lab.study.threads.cores", lambda: 6)
    for gpus, expected in ((0, 1), (2, 3), (8, 1)):
        monkeypatch.setattr("attnlab.lab.study.threads.number_of_gpus", lambda gpus=gpus: gpus)
        assert {run.threads for run in planned_runs(one_run())} == {expected}
    assert {run.threads for run in planned_runs(one_run(threads=5))} == {5}
    assert (default_threads(3), default_threads(4), default_threads(9)) == (2, 1, 1)


def test_a_run_with_other_threads_is_another_run() -> None:
    ids = {identify(small(1), threads=threads).run_id for threads in (1, 2)}
    assert len(ids) == 2
    assert identify(small(1)).threads == torch.get_num_threads()


def test_a_training_goes_on_with_its_own_threads_only(tmp_path: Path) -> None:
    train(small(1), tmp_path, threads=1, progress=lambda _: None)
    with pytest.raises(InputError, match="threads per process were 1, are 2"):
        train(small(1), tmp_path, threads=2)


def test_what_is_asked_for_goes_before_the_last_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("attnlab.lab.study.threads.cores", lambda: 4)
    store, study = Store(tmp_path), one_run()
    run_study(study.with_threads(1), tmp_path, HereExecutor())
    # Neither other slots nor the cores of another machine make other runs.
    assert with_threads_of(study, store, LocalExecutor(slots=1)).threads == 1
    assert with_threads_of(study, store, LocalExecutor(slots=1, threads=2)).threads == 2
    assert with_threads_of(one_run(threads=3), store, LocalExecutor(threads=2)).threads == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert with_threads_of(study, store, LocalExecutor(slots=1)).threads == 2
    # Whoever only looks sees what was run.
    assert str(study_status(study, tmp_path)) == "1 done"


def test_runs_with_other_threads_are_stale_and_counted(tmp_path: Path) -> None:
    run_study(one_run(threads=1), tmp_path, HereExecutor())
    status = study_status(one_run(threads=2), tmp_path)
    assert str(status) == "1 waiting, 1 stale: threads per process were 1, are 2"
    entries = [run.entry for run in status.runs]
    assert runs_with_other_threads(Store(tmp_path), entries) == Counter({1: 1})
    done = [run.entry for run in study_status(one_run(threads=1), tmp_path).runs]
    assert runs_with_other_threads(Store(tmp_path), done) == Counter()


def test_the_command_says_how_many_there_are_with_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(TOML)
    Path("other.toml").write_text(TOML)
    arguments = ["--out", "runs", "--slots", "1"]
    main(["study", "run", "mine.toml", *arguments, "--threads", "1"])
    capsys.readouterr()
    main(["study", "run", "other.toml", *arguments, "--threads", "2"])
    printed = " ".join(capsys.readouterr().out.split())
    assert "1 at a time, no GPU, 2 threads each" in printed
    assert (
        "1 run is there with 1 thread per process, and does not count for 2: threads decide the "
        "bits of the weights. --threads 1 goes on with it." in printed
    )
    assert "run_study(study.with_threads(2), 'runs')" in printed
    threads = {
        json.loads(file.read_text())["threads"] for file in tmp_path.glob("runs/*/identity.json")
    }
    assert threads == {1, 2}
    for folder in tmp_path.glob("runs/*/identity.json"):
        stored = StoredRun(folder.parent)
        assert stored.environment is not None
        assert stored.environment.threads == json.loads(folder.read_text())["threads"]


def test_every_start_is_kept(tmp_path: Path) -> None:
    recipe = {"name": "digits", "epochs": 2, "batch_size": 50}

    class StoppedError(Exception):
        pass

    def stop(_: object) -> None:
        raise StoppedError

    config = small(2, recipe=recipe)
    with pytest.raises(StoppedError):
        train(config, tmp_path, threads=1, progress=stop)
    train(config, tmp_path, threads=1, progress=lambda _: None)
    starts = StoredRun(tmp_path).starts
    assert len(starts) == 2
    assert starts[0].when is not None
    assert starts[1].when is not None
    assert starts[0].when < starts[1].when


def test_other_versions_in_a_comparison_are_said_where_the_verdict_stands(tmp_path: Path) -> None:
    study = simulate(tmp_path, data=("cifar10",), gains={"se": 0.4}, seeds=2, epochs=4)
    assert refresh(Store(tmp_path), study.name).mixed == ()
    file = tmp_path / study.runs[0].folder / "environment.json"
    (start,) = json.loads(file.read_text())["starts"]
    later = {**start, "packages": {"torch": "2.9.0"}}
    file.write_text(json.dumps({"starts": [start, later]}))
    prove(file.parent)
    table = refresh(Store(tmp_path), study.name)
    said = (
        "runs of cifar10 resnet20 that are compared were made with torch 2.8.0 (4 runs) and 2.9.0 "
        "(1 run): a difference may be the versions'"
    )
    assert said in study_footnotes(table)
    record = read_record(tmp_path, study.name)
    assert f"R{said[1:]}." in [chip.text for chip in plan_alerts(record)]


def test_show_finds_runs_of_whatever_threads(tmp_path: Path) -> None:
    run_study(one_run(threads=2), tmp_path, HereExecutor())
    assert show_study(one_run(), tmp_path).groups[0].rows[0].seeds == (0,)
