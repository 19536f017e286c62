"""Working on a study: what is done is kept, what failed is told, the table says what was found."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from tests.study._small import HereExecutor, small_study

from attnlab.study import Store, Study, planned_runs, run_study, study_table
from attnlab.study.estimate import plan_study
from attnlab.study.lock import claim
from attnlab.study.show import accuracy_cells, cost_cells, footnotes, markdown
from attnlab.study.store import read_failure
from attnlab.study.worker import Job, work
from attnlab.train import RunResult


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
    table = study_table(study, runs, done)
    top1 = {
        (run.cell.row, run.seed): 100
        * json.loads((done / run.run_id / "result.json").read_text())["top1"]
        for run in runs
    }
    (group,) = table.groups
    plain = np.array([top1["plain", seed] for seed in range(3)])
    for row in group.rows:
        values = np.array([top1[row.label, seed] for seed in range(3)])
        assert row.top1 is not None
        assert row.top1.mean == pytest.approx(values.mean())
        assert row.top1.std == pytest.approx(values.std(ddof=1))
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
    table = study_table(study, planned_runs(study), done)
    heads, rows = accuracy_cells(table.groups[0], table.level)
    assert heads[:5] == ["module", "seeds", "top-1 %", "best epoch*", "Δ [95% interval]"]
    assert [row[0] for row in rows] == ["plain", "se", "asr:se"]
    assert all(len(row) == len(heads) for row in rows)
    heads, rows = cost_cells(table.groups[0])
    assert all(len(row) == len(heads) for row in rows)
    assert rows[0][1] == "272,474"
    assert "| asr:se |" in markdown(table)


def test_ours_stands_beside_the_papers(done: Path) -> None:
    paper = {
        "source": "Table 0",
        "top1": {"digits resnet20": {"plain": "90.00 ± 0.10", "se": "91.25"}},
    }
    study = Study(**{**study_of_done().model_dump(), "paper": paper})
    table = study_table(study, planned_runs(study), done)
    heads, rows = accuracy_cells(table.groups[0], table.level)
    assert heads[-2:] == ["paper top-1 %", "paper Δ"]
    assert [row[-2:] for row in rows] == [["90.00 ± 0.10", ""], ["91.25", "+1.25"], ["", ""]]


def test_the_study_can_be_read_back_from_disk_alone(done: Path) -> None:
    study, runs = Store(done).read_study("small")
    assert study == study_of_done()
    assert [run.run_id for run in runs] == [run.run_id for run in planned_runs(study)]
    for run in runs:
        names = {file.name for file in (done / run.run_id).iterdir()}
        assert {"config.json", "environment.json", "metrics.jsonl", "result.json"} <= names
        assert "model.safetensors" in names


def test_a_plan_of_finished_runs_uses_their_times(done: Path) -> None:
    study = study_of_done()
    plan = plan_study(planned_runs(study), done)
    assert plan.left == []
    assert plan.seconds_left == 0
    for cell, estimate in plan.estimates.items():
        seconds = [RunResult.load(done / r.run_id).seconds for r in plan.runs if r.cell == cell]
        assert estimate.seconds == pytest.approx(np.mean(seconds))


def test_a_plan_of_new_runs_measures_a_step(tmp_path: Path) -> None:
    short = planned_runs(small_study(attention="none"))
    long = planned_runs(small_study(attention="none", recipe={"name": "digits", "epochs": 200}))
    few, many = (plan_study(runs, tmp_path).seconds_left for runs in (short, long))
    assert few is not None
    assert many is not None
    # 100 times the epochs; a step's time varies on a busy machine, but not by that much.
    assert 5 < many / few < 2000


def test_a_plan_without_its_data_says_why(tmp_path: Path) -> None:
    data = {"name": "npz", "root": str(tmp_path / "none.npz")}
    plan = plan_study(planned_runs(small_study(data=data, attention="none")), tmp_path)
    (estimate,) = plan.estimates.values()
    assert estimate.seconds is None
    assert "none.npz" in estimate.problem
    assert plan.seconds_left is None


def test_one_run_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    study = small_study(attention=[{"gate": "se", "where": "stages:9"}, "none"])
    outcomes = run_study(study, tmp_path, HereExecutor())
    assert [outcome.status for outcome in outcomes] == ["failed", "done"]
    failed, _ = planned_runs(study)
    store = Store(tmp_path)
    assert store.state(failed.run_id) == "failed"
    failure = read_failure(store.directory(failed.run_id))
    assert failure is not None
    assert failure.error.startswith("where='stages:9': 9 does not exist in this network.")
    assert "Traceback" in failure.details
    again = HereExecutor()
    run_study(study, tmp_path, again)
    assert again.given == [str(failed)]


def test_a_run_that_someone_else_works_on_is_left_alone(tmp_path: Path) -> None:
    (run,) = planned_runs(small_study(attention="none"))
    directory = tmp_path / run.run_id
    with claim(directory):
        outcome = work(Job(run.run_id, str(run), run.config.to_json(), str(directory)))
        assert Store(tmp_path).state(run.run_id) == "running"
    assert outcome.status == "busy"
    assert not (directory / "config.json").exists()
    assert Store(tmp_path).state(run.run_id) == "waiting"


def test_a_machine_that_does_not_see_the_storage_says_so(tmp_path: Path) -> None:
    (run,) = planned_runs(small_study(attention="none"))
    directory = tmp_path / "not" / "mounted" / run.run_id
    outcome = work(Job(run.run_id, str(run), run.config.to_json(), str(directory)))
    assert outcome.status == "failed"
    assert outcome.message == (
        f"This machine does not see {directory.parent}. Put --out on storage that all machines "
        f"share."
    )


def test_one_seed_is_said_to_prove_nothing(tmp_path: Path) -> None:
    study = small_study()
    run_study(study, tmp_path, HereExecutor())
    table = study_table(study, planned_runs(study), tmp_path)
    assert "one seed: no interval, so nothing can be said to be better" in table.notes
    _, rows = accuracy_cells(table.groups[0], table.level)
    assert rows[1][4].endswith(" [–]")
    assert "[–]: one seed: no interval" in footnotes(table)
    assert rows[1][6] == "cannot tell"
