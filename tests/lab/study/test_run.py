"""Working on a study: what is done is kept, what failed is told, the table says what was found."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from tests.lab.study._small import HereExecutor, small_study

from attnlab.data import Facts
from attnlab.instruments.measurement import MeasureConfig
from attnlab.lab.study import (
    LocalExecutor,
    Store,
    Study,
    measure_study,
    planned_runs,
    run_study,
    show_study,
)
from attnlab.lab.study.cost import TimeSpan
from attnlab.lab.study.estimate import plan_study
from attnlab.lab.study.executors import local
from attnlab.lab.study.lock import claim, owner
from attnlab.lab.study.run import study_jobs
from attnlab.lab.study.show import markdown, study_footnotes
from attnlab.lab.study.worker import Job, Outcome, work
from attnlab.lab.training import RunConfig
from attnlab.results import StoredRun
from attnlab.results.columns import StudyColumns
from attnlab.results.damage import sealed
from attnlab.results.study import read_study, read_table


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    outcomes = run_study(study_of_done(), out, HereExecutor())
    assert [outcome.status for outcome in outcomes] == ["done"] * 9
    return out


def study_of_done() -> Study:
    measure = {"images": 32, "inference_images": 32}
    return small_study(attention=["none", "se", "asr:se"], seeds=3, measure=measure)


def test_finished_runs_are_not_repeated_even_by_another_study(done: Path) -> None:
    before = {file: file.stat().st_mtime_ns for file in done.glob("*/result.json")}
    assert len(before) == 9
    other = study_of_done().model_copy(update={"name": "other"})
    executor = HereExecutor()
    assert run_study(other, done, executor) == []
    assert executor.given == []
    assert before == {file: file.stat().st_mtime_ns for file in done.glob("*/result.json")}


def test_the_table_is_what_the_results_on_disk_say(done: Path) -> None:
    study = study_of_done()
    runs = planned_runs(study)
    table = show_study(study, done)
    top1 = {
        (run.cell.row, run.seed): 100
        * json.loads((done / run.run_id / "result.json").read_text())["values"]["top1"]
        for run in runs
    }
    (group,) = table.groups
    plain = np.array([top1["plain", seed] for seed in range(3)])
    for row in group.rows:
        values = np.array([top1[row.label, seed] for seed in range(3)])
        assert row.values["top1"].mean == pytest.approx(values.mean())
        assert row.values["top1"].std == pytest.approx(values.std(ddof=1))
        assert row.by_seed == pytest.approx(dict(enumerate(values)))
        if row.plain:
            assert row.comparison is None
            continue
        assert row.comparison is not None
        assert row.comparison.difference.mean == pytest.approx((values - plain).mean())
        if np.ptp(values - plain) > 1e-9:
            reference = stats.ttest_rel(values, plain)
            assert row.comparison.difference.p_value == pytest.approx(reference.pvalue)
    asr = group.rows[2]
    assert asr.fold_error is not None
    assert asr.fold_error < 1e-10
    assert asr.folded_parameters == group.rows[0].parameters
    assert group.rows[1].fold_error is None
    assert group.rows[0].tns is not None


def test_the_table_as_text(done: Path) -> None:
    study = study_of_done()
    table = show_study(study, done)
    shown = StudyColumns(table).terminal(table.groups[0])[0]
    heads, rows = shown.columns, shown.texts()
    assert heads[:5] == ["module", "seeds", "top-1 %", "best epoch*", "Δ [95% interval]"]
    assert [row[0] for row in rows] == ["plain", "se", "asr:se"]
    assert all(len(row) == len(heads) for row in rows)
    tables = StudyColumns(table).terminal(table.groups[0])
    (shown,) = (each for each in tables if "parameters" in each.columns)
    heads, rows = shown.columns, shown.texts()
    assert all(len(row) == len(heads) for row in rows)
    assert rows[0][1] == "272,474"
    assert "| asr:se |" in markdown(table)


def test_ours_stands_beside_the_papers(done: Path) -> None:
    paper = {
        "source": "Table 0",
        "top1": {"digits resnet20": {"plain": "90.00 ± 0.10", "se": "91.25"}},
    }
    study = Study(**{**study_of_done().model_dump(exclude_defaults=True), "paper": paper})
    table = show_study(study, done)
    shown = StudyColumns(table).terminal(table.groups[0])[0]
    heads, rows = shown.columns, shown.texts()
    assert heads[-2:] == ["paper top-1 %", "paper Δ"]
    assert [row[-2:] for row in rows] == [["90.00 ± 0.10", ""], ["91.25", "+1.25"], ["", ""]]


def test_the_study_can_be_read_back_from_disk_alone(done: Path) -> None:
    directory = Store(done).study_directory("small")
    stored = read_study(directory)
    assert Study(**stored.definition) == study_of_done().with_threads(1)
    assert [e.run_id for e in stored.runs] == [r.run_id for r in planned_runs(study_of_done())]
    assert read_table(directory) == show_study(study_of_done(), done)
    for entry in stored.runs:
        names = {file.name for file in (done / entry.folder).iterdir()}
        assert {"config.json", "identity.json", "environment.json", "metrics.jsonl"} <= names
        assert {"result.json", "model.safetensors", "measured"} <= names


def test_measurements_are_apart_and_can_be_made_again(done: Path) -> None:
    """Without training: the weights are not touched."""
    store = Store(done)
    entry = next(e for e in read_study(store.study_directory("small")).runs if e.cell.row == "se")
    run, weights = store.run(entry), done / entry.folder / "model.safetensors"
    before = weights.stat().st_mtime_ns
    found = run.measured("stiffness")
    assert found is not None
    assert found.settings == {"images": 32}
    assert [job.is_done for job in study_jobs(store, study_of_done(), [entry] * 9)][:1] == [True]
    (done / entry.folder / "measured" / "stiffness.json").unlink()
    executor = HereExecutor()
    run_study(study_of_done(), done, executor)
    assert executor.given == [str(entry)]
    again = StoredRun(run.directory).measured("stiffness")
    assert again is not None
    assert again.found is not None
    assert found.found is not None
    assert again.found["tns"] == found.found["tns"]
    assert weights.stat().st_mtime_ns == before


def test_a_plan_of_finished_runs_uses_their_times(done: Path) -> None:
    study = study_of_done()
    plan = plan_study(study, done)
    assert plan.left == []
    assert plan.seconds_left == 0
    for cell, estimate in plan.estimates.items():
        own = [run for run in plan.runs if run.cell == cell]
        seconds = [StoredRun(done / run.run_id).result.seconds for run in own]
        assert estimate.seconds == pytest.approx(np.mean(seconds))


def test_a_plan_of_new_runs_measures_a_step(tmp_path: Path) -> None:
    short = small_study(attention="none")
    long = small_study(attention="none", recipe={"name": "digits", "epochs": 200})
    few, many = (plan_study(study, tmp_path).seconds_left for study in (short, long))
    assert few is not None
    assert many is not None
    # 100 times the epochs; a step's time varies on a busy machine, but not by that much.
    assert 5 < many / few < 2000


def test_a_plan_times_a_step_with_the_threads_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = torch.get_num_threads()
    timed: list[int] = []

    def step(*_: object) -> TimeSpan:
        timed.append(torch.get_num_threads())
        return TimeSpan(0.9, 1.0, 1.2)

    monkeypatch.setattr("attnlab.lab.study.estimate.seconds_per_image", step)
    plan_study(small_study(threads=before + 1), tmp_path)
    assert set(timed) == {before + 1}
    assert torch.get_num_threads() == before


def test_a_plan_times_every_row_by_its_own_network_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On other data a row is as much slower than the plain backbone as on the first."""
    timed: list[str] = []
    seconds = {"none": 1.0, "se": 3.0}

    def step(config: RunConfig, facts: Facts) -> TimeSpan:
        timed.append(f"{config.data.name} {config.attention}")
        time = seconds[config.attention] * (1 if facts.name == "cifar10" else 2)
        return TimeSpan(time, time, time)

    monkeypatch.setattr("attnlab.lab.study.estimate.seconds_per_image", step)
    data = [{"name": "cifar10"}, {"name": "cifar100"}]
    recipe = {"name": "resnet_cifar", "epochs": 10}
    told: list[str] = []
    plan = plan_study(small_study(data=data, seeds=2, recipe=recipe), tmp_path, told.append)
    assert timed == ["cifar10 none", "cifar100 none", "cifar10 se"]
    assert told == [
        "timing a step of cifar10 resnet20 plain",
        "timing a step of cifar100 resnet20 plain",
        "timing a step of cifar10 resnet20 se",
    ]
    found = {(cell.data, cell.row): each for cell, each in plan.estimates.items()}
    plain = found["cifar10", "plain"].seconds
    assert plain is not None
    ratios = {place: (each.seconds or 0) / plain for place, each in found.items()}
    assert ratios == {
        ("cifar10", "plain"): 1,
        ("cifar10", "se"): 3,
        ("cifar100", "plain"): 2,
        ("cifar100", "se"): 6,
    }
    assert found["cifar100", "se"].basis == "step on other data"


def test_a_plan_without_its_data_says_why(tmp_path: Path) -> None:
    data = {"name": "npz", "root": str(tmp_path / "none.npz")}
    plan = plan_study(small_study(data=data, attention="none"), tmp_path)
    (estimate,) = plan.estimates.values()
    assert estimate.seconds is None
    assert "none.npz" in estimate.problem
    assert plan.seconds_left is None
    assert "none.npz" in plan.problem


def test_one_run_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    study = small_study(attention=[{"gate": "se", "where": "stages:9"}, "none"])
    outcomes = run_study(study, tmp_path, HereExecutor())
    assert [outcome.status for outcome in outcomes] == ["failed", "done"]
    store = Store(tmp_path)
    failed, _ = read_study(store.study_directory("small")).runs
    assert store.state(failed) == "failed"
    failure = StoredRun(tmp_path / failed.folder).failure
    assert failure is not None
    assert failure.error.startswith("where='stages:9': 9 does not exist in this network.")
    assert "Traceback" in failure.details
    again = HereExecutor()
    run_study(study, tmp_path, again)
    assert again.given == [str(failed)]


def job_of(directory: Path, run_id: str = "") -> Job:
    (run,) = planned_runs(small_study(attention="none"))
    measure = MeasureConfig(images=0, inference_images=0).model_dump_json()
    return Job(run_id or run.run_id, str(run), run.config.to_json(), measure, str(directory), 1)


def test_a_run_that_someone_else_works_on_is_left_alone(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    with claim(directory):
        outcome = work(job_of(directory))
    assert outcome.status == "busy"
    assert not (directory / "config.json").exists()


def test_what_others_made_of_a_run_starts_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_of(tmp_path / "run")
    assert local._known(job) is None
    with claim(tmp_path / "run"):
        assert local._known(job) == Outcome(job, "busy", owner(tmp_path / "run"))
    monkeypatch.setattr(Job, "is_done", True)
    assert local._known(job) == Outcome(job, "done")


def test_a_run_that_is_not_the_planned_one_any_more_is_not_trained(tmp_path: Path) -> None:
    outcome = work(job_of(tmp_path / "run", run_id="0" * 12))
    (run,) = planned_runs(small_study(attention="none"))
    assert outcome.message == (
        f"digits resnet20 plain seed 0 was planned as run 000000000000 and is {run.run_id} now: "
        f"its data, weights or classes changed meanwhile. Run the study again, which plans it anew."
    )
    assert not (tmp_path / "run" / "config.json").exists()


def test_a_machine_that_does_not_see_the_storage_says_so(tmp_path: Path) -> None:
    directory = tmp_path / "not" / "mounted" / "run"
    outcome = work(job_of(directory))
    assert outcome.status == "failed"
    assert outcome.message == (
        f"This machine does not see {directory.parent}. Put --out on storage that all machines "
        f"share, or at an address such as s3://bucket/runs."
    )


def test_one_seed_is_said_to_prove_nothing(tmp_path: Path) -> None:
    study = small_study()
    run_study(study, tmp_path, HereExecutor())
    table = show_study(study, tmp_path)
    assert "one seed: no interval, so nothing can be said to be better" in table.notes
    rows = StudyColumns(table).terminal(table.groups[0])[0].texts()
    assert rows[1][4].endswith(" [–]")
    assert "[–]: one seed: no interval" in study_footnotes(table)
    assert rows[1][6] == "cannot tell"


def test_networks_are_timed_in_turns_when_the_study_ends(done: Path) -> None:
    study = study_of_done()
    (group,) = show_study(study, done).groups
    assert group.timed is None
    assert group.why_not_timed == (
        "the networks were not timed interleaved (the runs were made elsewhere: this process): "
        f"`attnlab study measure small --only speed --out {done.resolve()}` does it here"
    )
    assert measure_study("small", done, only=["speed"]) == 1
    (group,) = show_study(study, done).groups
    assert group.timed is not None
    assert (group.timed.reference, group.timed.batch, group.why_not_timed) == ("plain", 32, "")
    first = {run.cell.row: run.run_id for run in planned_runs(study) if run.seed == 0}
    for row in group.rows:
        assert row.speed is not None
        assert row.speed.folder == first[row.label]
        plain = group.rows[0].speed
        assert plain is not None
        assert row.speed.milliseconds == pytest.approx(plain.milliseconds * row.speed.ratio)
        assert row.speed.low <= row.speed.ratio <= row.speed.high
        assert (row.folded_speed is not None) == (row.label == "asr:se")
    # The same runs are not timed again; a run that goes takes the times with it.
    before = (done / "studies" / "small" / "speed.json").read_bytes()
    run_study(study, done, HereExecutor())
    measure_study("small", done)
    assert (done / "studies" / "small" / "speed.json").read_bytes() == before


def test_times_of_other_runs_are_not_shown(done: Path) -> None:
    file = done / "studies" / "small" / "speed.json"
    measure_study("small", done, only=["speed"])
    text = file.read_text()
    found = json.loads(text)
    found["groups"]["digits resnet20"]["rows"]["se"]["folder"] = "0" * 12
    for content, why in (
        (
            sealed({name: value for name, value in found.items() if name != "checksum"}),
            "other runs were timed than are finished now: `attnlab study measure small --only "
            f"speed --out {done.resolve()}` times these",
        ),
        ("{", "speed.json is damaged: "),
    ):
        file.write_text(content)
        (group,) = show_study(study_of_done(), done).groups
        assert group.timed is None
        assert why in group.why_not_timed
        assert all(row.speed is None for row in group.rows)
    file.write_text(text)


def test_a_study_on_this_machine_is_timed_at_its_end(tmp_path: Path) -> None:
    study = small_study(attention=["none"], seeds=1, measure={"images": 0, "inference_images": 4})
    run_study(study, tmp_path, LocalExecutor(1, threads=1))
    (group,) = show_study(study, tmp_path).groups
    assert group.timed is not None
    assert (group.timed.threads, group.timed.batch) == (1, 4)
