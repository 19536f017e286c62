"""What the page claims, against scipy's paired t-test and Holm's procedure written out here."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats
from tests.lab.pages.simulated import BLOCKS, prove, simulate

from attnlab.instruments.place.section import placed_rows
from attnlab.lab.pages.alerts import alerts
from attnlab.lab.pages.help import forest_rows
from attnlab.lab.pages.study_page import study_page
from attnlab.results import RunResult
from attnlab.results.record import StudyRecord, read_record

Differences = dict[str, dict[str, np.ndarray]]


@pytest.fixture(scope="module")
def record(tmp_path_factory) -> StudyRecord:
    runs = tmp_path_factory.mktemp("runs")
    return _record(runs, data=("cifar10", "stl10"), blocks=("1.0", "1.1"))


def _record(out, **settings) -> StudyRecord:
    return read_record(out, simulate(out, **settings).name)


def _differences(record: StudyRecord, read: Callable[[RunResult], float]) -> Differences:
    """Data set → module → 100 · (module − plain), seed by seed, straight from the runs."""
    values: dict[tuple[str, str, int], float] = {}
    for run in record.runs:
        cell = run.entry.cell
        values[cell.data, cell.row, run.entry.seed] = 100 * read(run.result)
    found: Differences = {}
    for data, row, _ in values:
        if row != "plain":
            pairs = [values[data, row, seed] - values[data, "plain", seed] for seed in range(5)]
            found.setdefault(data, {})[row] = np.array(pairs)
    return found


def _verdicts(differences: dict[str, np.ndarray]) -> dict[str, str]:
    """By Holm's step-down: the k-th smallest of m p-values must be below 0.05 / (m − k)."""
    p = {row: stats.ttest_1samp(d, 0).pvalue for row, d in differences.items()}
    found, holds = {}, True
    for k, row in enumerate(sorted(p, key=p.__getitem__)):
        holds = holds and p[row] < 0.05 / (len(p) - k)
        better = differences[row].mean() > 0
        found[row] = ("gain" if better else "loss") if holds else "no"
    return found


def test_forest_has_the_t_interval_and_the_verdict_after_holm(record):
    differences = _differences(record, lambda result: result.values["top1"])
    standings = set()
    for group in record.table.groups:
        own = differences[group.data]
        verdicts = _verdicts(own)
        rows = forest_rows(group)
        assert [row.module for row in rows] == list(own)
        for row in rows:
            test = stats.ttest_1samp(own[row.module], 0)
            low, high = test.confidence_interval(0.95)
            assert (row.mean, row.low, row.high) == pytest.approx(
                (own[row.module].mean(), low, high), rel=1e-9
            )
            assert list(row.seeds.values()) == pytest.approx(list(own[row.module]), rel=1e-9)
            expected = verdicts[row.module]
            if expected == "no":
                expected = "within noise" if low <= 0 <= high else "before correction only"
            assert row.standing == expected
            standings.add(row.standing)
    # All four cases are in the data, or this would not tell them apart.
    assert standings == {"gain", "loss", "within noise", "before correction only"}


def test_alert_of_the_best_epoch_names_the_verdicts_that_it_would_change(record):
    last = _differences(record, lambda result: result.values["top1"])
    best = _differences(record, lambda result: result.best_value)
    changed = [
        f"{row} on {data}"
        for data in last
        for row in last[data]
        if _verdicts(last[data])[row] != _verdicts(best[data])[row]
    ]
    assert changed  # else this shows nothing
    (alert,) = (a for a in alerts(record) if a.text == "Results are of the last epoch.")
    gaps = [100 * (run.result.best_value - run.result.value) for run in record.runs]
    assert f"would add {np.mean(gaps):.2f} pt on average" in alert.detail
    assert alert.detail.endswith(f"It would change the verdict on {', '.join(changed)}.")
    assert alert.tone == "warn"


def test_alert_of_the_correction_names_its_modules(record):
    texts = [alert.text for alert in alerts(record)]
    for group in record.table.groups:
        rows = forest_rows(group)
        only = [row.module for row in rows if row.standing == "before correction only"]
        expected = f"{group.data}: {', '.join(only)} not significant after Holm."
        assert (expected in texts) == bool(only)


@pytest.mark.parametrize(("above", "weak"), [(0.2, False), (1.5, True)])
def test_weak_baseline_is_an_alert(tmp_path, above, weak):
    record = _record(tmp_path, data=("cifar10",), gains={"se": 0.4}, epochs=4, above=above)
    found = [alert for alert in alerts(record) if "Weak baseline" in alert.text]
    assert [alert.tone for alert in found] == (["warn"] if weak else [])


def test_mixed_commits_are_an_alert(tmp_path):
    study = simulate(tmp_path, data=("cifar10",), gains={"se": 0.4}, seeds=2, epochs=4)
    file = tmp_path / study.runs[0].folder / "environment.json"
    (start,) = json.loads(file.read_text())["starts"]
    file.write_text(json.dumps({"starts": [{**start, "commit": "f" * 40 + "+"}]}))
    prove(file.parent)
    (alert,) = (a for a in alerts(read_record(tmp_path, study.name)) if "commits" in a.text)
    assert alert.text == "Runs come from 2 commits."
    assert alert.detail.startswith("a1b2c3d, fffffff+.")


def test_lottery_ticket_view_needs_one_module_with_several_numbers_of_gates(tmp_path):
    settings = {"data": ("cifar10",), "gains": {"se": 0.4, "eca": 0.2}, "seeds": 2, "epochs": 4}
    plain = _record(tmp_path / "plain", **settings)
    assert [each.strategy for each in placed_rows(plain, plain.table.groups[0])] == ["plain"]
    where = {"": BLOCKS, " @ stages:1": BLOCKS[:3]}
    record = _record(tmp_path / "places", **settings, where=where)
    found = placed_rows(record, record.table.groups[0])
    assert sorted((each.row.label, each.sites) for each in found) == [
        ("eca", 9),
        ("eca @ stages:1", 3),
        ("plain", 0),
        ("se", 9),
        ("se @ stages:1", 3),
    ]
    parts = next(s for s in study_page(record).sections if s.title == "Where?").parts
    assert [part.kind for part in parts] == ["figure", "heading", "figure", "folded"]
