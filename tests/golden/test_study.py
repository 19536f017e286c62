"""A study that attnlab 0.1 stored still says the same, to the last figure of its table."""

from __future__ import annotations

import csv
import html
import io
import json
import shutil
from pathlib import Path

import pytest
from tests.lab.pages.simulated import make_table

from attnlab.lab.pages.study_page import study_page
from attnlab.lab.pages.write import write_study_page
from attnlab.results import v0_1
from attnlab.results.record import read_record
from attnlab.results.study import Cell, RunEntry, StoredStudy, write_study, write_table
from attnlab.results.v0_1 import METRICS

GOLDEN = Path(__file__).parent / "v0_1"
EXPECTED = list(csv.DictReader(io.StringIO((GOLDEN / "table.csv").read_text(encoding="utf-8"))))


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return shutil.copytree(GOLDEN / "runs", tmp_path / "runs")


def test_brought_up_to_date_its_table_and_its_page_are_the_same(runs: Path) -> None:
    from attnlab.lab.study import Store, refresh

    table = refresh(Store(runs), "golden")
    assert len(table.finished) == table.planned == 12
    assert (table.sequential, table.changes) == (False, ())
    _check_page(runs)
    assert refresh(Store(runs), "golden") == table


def test_page_of_runs_of_0_1(runs: Path) -> None:
    """Without the study room: the table is made by the test."""
    study = _stored(runs / "studies" / "golden" / "study.json")
    directory = runs / "studies" / "golden"
    write_study(directory, study)
    write_table(directory, make_table(runs, study))
    _check_page(runs)
    stiff = study_page(read_record(runs, "golden")).sections[2]
    assert [part.kind for part in stiff.parts] == ["row", "heading", "figure", "folded", "folded"]


def _check_page(runs: Path) -> None:
    page = write_study_page(runs, "golden", runs / "page.html")
    text = html.unescape(page.read_text(encoding="utf-8"))
    assert "No module</strong> differs from the plain resnet20 by more than seed noise" in text
    assert "ASR(SE): +11.67 pt [+1.32, +22.02], n = 3, before correction only" in text
    assert "fd77682cc06a95179288efb6b2d8ec555cca5583f37c2076c4c7026172dffa32  digits" in text
    assert "In 9 of 12 runs:" in text
    assert text.count('aria-label="Gate layer') == 9
    # Only the runs of seed 0 stored which step is the stiffest.
    assert "of 4 runs" in text
    found = list(csv.DictReader(page.with_suffix(".csv").read_text().splitlines()))
    assert len(found) == len(EXPECTED)
    for row, expected in zip(found, EXPECTED, strict=True):
        for column, value in expected.items():
            try:
                assert float(row[column]) == pytest.approx(float(value), rel=1e-9), column
            except ValueError:  # no number
                assert row[column] == value, column


def _stored(file: Path) -> StoredStudy:
    old = json.loads(file.read_text(encoding="utf-8"))
    gates = {entry["label"]: entry["gate"] for entry in old["study"]["attention"]}
    cells = [Cell(r["data"], r["backbone"], r["row"], r["plain"]) for r in old["runs"]]
    paper = old["study"]["paper"]
    return StoredStudy(
        name="golden",
        title=old["study"]["title"],
        definition={"paper": {"source": paper["source"], "figures": {"top1": paper["top1"]}}},
        recipe="digits",
        deviations=(),
        commands="",
        bibliography="",
        runs=tuple(
            RunEntry(run["run_id"], run["run_id"], run["seed"], cell, gates[cell.row])
            for run, cell in zip(old["runs"], cells, strict=True)
        ),
        seeds=(0, 1, 2),
        has_plain=True,
        metrics=tuple(metric.model_dump() for metric in METRICS),
    )


def test_runs_of_0_1_are_found_again_by_todays_plan(runs: Path) -> None:
    """Nothing is trained again: 0.1's ids are computed from today's settings."""
    from attnlab.lab.study import Study, show_study, study_status

    old = json.loads((GOLDEN / "runs" / "studies" / "golden" / "study.json").read_text())
    study = Study(**v0_1.study(old["study"]))
    assert str(study_status(study, runs)) == "12 done"
    table = show_study(study, runs)
    for row, expected in zip(table.groups[0].rows, EXPECTED, strict=True):
        assert row.values["top1"].mean == pytest.approx(float(expected["top1"]), rel=1e-12)
        assert row.stale == ()


def test_runs_of_0_1_with_another_setting_are_stale(runs: Path) -> None:
    from attnlab.lab.study import Study, study_status

    old = json.loads((GOLDEN / "runs" / "studies" / "golden" / "study.json").read_text())
    settings = v0_1.study(old["study"])
    study = Study(**{**settings, "recipe": {**settings["recipe"], "lr": 0.2}})
    assert str(study_status(study, runs)) == (
        "12 waiting, 12 stale: attnlab 0.1 did not store what they were made from"
    )


def test_runs_of_0_1_that_saw_different_data_are_not_compared(runs: Path) -> None:
    from attnlab.lab.study import Store, refresh

    file = next(runs.glob("*/data.json"))
    facts = json.loads(file.read_text())
    file.write_text(json.dumps({**facts, "checksum": "0" * 64}))
    (group,) = refresh(Store(runs), "golden").groups
    compared = [row.comparison for row in group.rows if row.comparison]
    assert {each.verdict for each in compared} == {"cannot tell"}
    assert compared[0].note == "runs of attnlab 0.1 saw different data called 'digits'"
