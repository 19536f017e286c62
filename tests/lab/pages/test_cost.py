"""What the part of a page about cost says: its sentence, its points and its curves."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.lab.pages.simulated import simulate

from attnlab.lab.pages.cost import (
    _answer,
    _drops,
    _how,
    _legend,
    cost_points,
    cost_section,
    curves_of,
)
from attnlab.results.record import StudyRecord, read_record
from attnlab.results.speed import GroupSpeed, TimedNetwork


@pytest.fixture(scope="module")
def record(tmp_path_factory) -> StudyRecord:
    """`se` takes 1.05 of the time of the plain network, `asr:se` 1.10 before it is folded."""
    out = tmp_path_factory.mktemp("cost")
    gains = {"se": 0.5, "asr:se": 0.5}
    return read_record(out, simulate(out, data=("cifar10",), gains=gains, seeds=2, epochs=164).name)


def timed(record: StudyRecord, folded: bool = True, **ratios: tuple[float, float, float]):
    """The study with these ratios in the place of its own."""
    (group,) = record.table.groups
    rows = []
    for row in group.rows:
        name = row.label.replace("asr:", "asr_")
        speed = row.speed
        if name in ratios:
            ratio, low, high = ratios[name]
            speed = TimedNetwork(folder="f", milliseconds=ratio, ratio=ratio, low=low, high=high)
        rows.append(replace(row, speed=speed, folded_speed=row.folded_speed if folded else None))
    return replace(record, table=replace(record.table, groups=(replace(group, rows=tuple(rows)),)))


def test_who_takes_longer_and_what_folds(record):
    assert _answer(record) == (
        "On this machine se, asr:se take 5–10 % longer than plain; folded, asr:se takes 1.00 "
        "[0.98, 1.02] of its time, no difference shown."
    )
    one = timed(record, folded=False, se=(1.05, 1.03, 1.07), asr_se=(1.01, 0.99, 1.03))
    assert _answer(one) == (
        "On this machine se takes 5 % longer than plain; no difference in time is shown for asr:se."
    )
    same = timed(record, folded=False, se=(1.054, 1.03, 1.07), asr_se=(1.046, 1.04, 1.05))
    assert _answer(same) == "On this machine se, asr:se take 5 % longer than plain."
    quick = timed(record, folded=False, se=(0.9, 0.8, 0.95), asr_se=(0.9, 0.8, 0.95))
    assert _answer(quick) == "On this machine no module is slower than plain."
    (group,) = record.table.groups
    untimed = replace(record.table, groups=(replace(group, timed=None),))
    assert _answer(replace(record, table=untimed)).startswith("The time of the networks is not kn")


def test_points_are_times_with_intervals_and_the_mean_result(record):
    (group,) = record.table.groups
    points = {(point.module, point.kind): point for point in cost_points(group, record.metric)}
    assert list(points) == [
        ("plain", "plain"),
        ("se", "gated"),
        ("asr:se", "folds"),
        ("asr:se", "folded"),
    ]
    rows = {row.label: row for row in group.rows}
    for (module, kind), ratio in zip(points, (1, 1.05, 1.1, 1), strict=True):
        point = points[module, kind]
        assert point.milliseconds == pytest.approx(1.84 * ratio)
        value = rows[module].folded if kind == "folded" else rows[module].values["top1"]
        assert point.result == value.mean
        if kind == "plain":
            assert (point.low, point.high) == (None, None)
        else:
            ends = (1.84 * (ratio - 0.02), 1.84 * (ratio + 0.02))
            assert (point.low, point.high) == pytest.approx(ends)
    without = replace(group, rows=tuple(replace(row, speed=None) for row in group.rows))
    assert cost_points(without, record.metric) == []


def test_how_it_was_timed_and_what_the_marks_mean(record):
    assert _how(record) == (
        "cifar10: one network per row, the first seed's, all timed interleaved in one process "
        "after the last run had ended (30 rounds of 64 images, 1 thread, a processor); bars are "
        "95 % intervals of the time relative to plain."
    )
    (group,) = record.table.groups
    other = {"threads": 2, "processor": "", "device": "cuda", "busy": "the machine is busy"}
    speed = GroupSpeed(**(group.timed.model_dump() | other))
    changed = replace(record.table, groups=(replace(group, timed=speed),))
    said = _how(replace(record, table=changed))
    assert "2 threads, cuda); bars" in said
    assert said.endswith("relative to plain. The machine is busy.")
    every = [
        ("diamond", "plain backbone"),
        ("square", "its gates stay"),
        ("circle", "its gates fold"),
        ("ring", "folded: no gate is left"),
    ]
    assert _legend(record) == every
    assert _legend(timed(record, folded=False)) == every[:2]


def test_curves_are_means_and_ranges_over_seeds(record):
    (group,) = record.table.groups
    curves = {curve.module: curve for curve in curves_of(record, group)}
    assert list(curves) == ["plain", "se", "asr:se"]
    runs = [run.stored.curve.values for run in record.of(group, "se")]
    assert len(runs) == 2
    for epoch in (0, 80, 163):
        values = [100 * run[epoch] for run in runs]
        assert curves["se"].mean[epoch] == pytest.approx(sum(values) / 2)
        assert (curves["se"].low[epoch], curves["se"].high[epoch]) == pytest.approx(
            (min(values), max(values))
        )


def test_dashes_are_at_the_epochs_with_a_lower_learning_rate(record):
    """Counted from 1: the first epoch whose rate is below two thirds of that before it."""
    (group,) = record.table.groups
    rates = record.finished[0].stored.curve.rates
    wanted = [n + 1 for n in range(1, len(rates)) if rates[n] < rates[n - 1] * 2 / 3]
    assert wanted
    assert _drops(record, group) == wanted
    assert _drops(replace(record, runs=()), group) == []


def test_of_one_data_set_both_pictures_stand_side_by_side(record):
    section = cost_section(record)
    assert [part.kind for part in section.parts] == ["legend", "row"]
    time, way = section.parts[1].figures
    assert time.caption == _how(record)
    assert way.caption == (
        "top-1 on the test images, after each epoch: mean, and range over seeds; dashes where the "
        "learning rate drops."
    )
    assert cost_section(record, doubtful=True).to_do == (
        "Deploy nothing from here before the alerts at the top are seen to."
    )
    (group,) = record.table.groups
    rows = tuple(replace(row, speed=None, folded_speed=None) for row in group.rows)
    untimed = replace(group, rows=rows, timed=None, why_not_timed="a network did not run")
    section = cost_section(replace(record, table=replace(record.table, groups=(untimed,))))
    assert [part.kind for part in section.parts] == ["heading", "row", "text", "text"]
    assert section.parts[-1].text == (
        "cifar10: no picture of the time, because a network did not run."
    )
    nothing = cost_section(replace(record, runs=()))
    assert (nothing.parts, nothing.lead) == ([], "No run is finished.")
