"""What happened to a study's plan is on its page: looks, stale runs, data that changed."""

from __future__ import annotations

import csv
import html
import io
import json
import re
from pathlib import Path

import pytest
from tests.lab.pages.simulated import Plan, make_table, prove, simulate

from attnlab.lab.pages.alerts import alerts, plan_alerts
from attnlab.lab.pages.figures import forest_figure
from attnlab.lab.pages.help import forest_rows
from attnlab.lab.pages.study_page import study_page
from attnlab.lab.pages.verdict import study_chips, study_verdict
from attnlab.lab.pages.write import write_study_page
from attnlab.page.plot import BLUE, GREY, to_svg
from attnlab.page.tables import latex
from attnlab.results.record import StudyRecord, read_record
from attnlab.results.study import read_table, write_table
from attnlab.results.verdict import verdict_sentence

ADDED = "seeds 3, 4 were added on 2023-11-15, after 6 runs had been seen: verdicts are by …"
ONE = {"data": ("cifar10",), "epochs": 4}
# By the t interval both differ; by the interval that is three times as wide only the first.
GAINS = {"se": 1.0, "eca": 0.16}


def _record(out: Path, **settings) -> StudyRecord:
    return read_record(out, simulate(out, **ONE | settings).name)


@pytest.fixture(scope="module")
def fixed(tmp_path_factory) -> StudyRecord:
    return _record(tmp_path_factory.mktemp("fixed"), gains=GAINS)


@pytest.fixture(scope="module")
def looked(tmp_path_factory) -> StudyRecord:
    plan = Plan(sequential=True, changes=(ADDED,), seeds=((0, 1, 2),))
    return _record(tmp_path_factory.mktemp("looked"), gains=GAINS, plan=plan)


def test_verdict_and_pictures_are_by_the_interval_that_looking_asks_for(fixed, looked):
    (one,), (other,) = fixed.table.groups, looked.table.groups
    assert [row.standing for row in forest_rows(one)] == ["gain", "gain"]
    assert [row.standing for row in forest_rows(other)] == ["gain", "within noise"]
    for group, record in ((one, fixed), (other, looked)):
        colours = [BLUE, BLUE] if record is fixed else [BLUE, GREY]
        svg = to_svg(forest_figure(forest_rows(group), record.metric))
        fills = re.findall(r'aria-label="(?:se|eca): [^"]*"[^>]*fill="([^"]+)"', svg)
        assert fills == colours
    difference = other.rows[2].comparison.difference
    assert difference.anytime_low < 0 < difference.low
    expected = f"[{difference.anytime_low:+.2f}, {difference.anytime_high:+.2f}]"
    assert f"eca: {difference.mean:+.2f} pt {expected}, n = 5, within noise" in to_svg(
        forest_figure(forest_rows(other), looked.metric)
    )
    for table in (looked.columns.main(), looked.columns.full()):
        cell = next(cell for cell in table.rows[2] if cell.small == expected)
        assert cell.tone == "quiet"
    inside = latex(f"{difference.mean:+.2f} {expected}")
    assert f" & {inside} & " in looked.columns.for_latex().to_latex()
    assert r"\textbf" not in looked.columns.for_latex().to_latex().splitlines()[-3]
    assert r"\textbf" in fixed.columns.for_latex().to_latex().splitlines()[-3]
    assert study_verdict(looked) == (
        "**se** beats the plain resnet20 on cifar10 by more than seed noise. 1 of 2 modules shows "
        "no gain."
    )


def test_the_page_names_the_kind_of_interval(fixed, looked):
    leads = [study_page(record).sections[0].lead for record in (fixed, looked)]
    assert "Bar: 95 % Student-t interval of the paired mean (n = 5). Grey" in leads[0]
    assert (
        "Bar: 95 % anytime-valid interval of the paired mean (n = 5), which is right however often "
        "one looked. Grey" in leads[1]
    )
    assert "with its 95 % anytime-valid interval" in study_page(looked).sections[5].lead
    text = looked.columns.for_latex().to_latex()
    assert "% 95 % anytime-valid interval; p after Holm's correction" in text


def test_chip_says_that_it_was_looked_at(fixed, looked, tmp_path):
    word = "anytime-valid intervals"
    found = [
        [(chip.text, chip.tone) for chip in study_chips(record) if word in chip.text]
        for record in (fixed, looked, _record(tmp_path, gains=GAINS, plan=Plan(sequential=True)))
    ]
    assert found == [
        [],
        [("looked and extended: anytime-valid intervals", "warn")],
        [("looks were planned: anytime-valid intervals", "neutral")],
    ]


def test_changes_stand_beside_the_verdict(looked, tmp_path):
    assert [(a.text, a.tone) for a in plan_alerts(looked)] == [
        (f"S{ADDED[1:]}.", "warn"),
    ]
    page = study_page(looked)
    assert page.notes == plan_alerts(looked)
    simulate(tmp_path, **ONE, gains=GAINS, plan=Plan(changes=(ADDED,)), name="x")
    text = html.unescape(write_study_page(tmp_path, "x", tmp_path / "x.html").read_text())
    header = text.partition("<header>")[2].partition("</header>")[0]
    assert f'<li class="warn"><strong>S{ADDED[1:]}.</strong></li>' in header


def test_both_p_values_are_in_the_full_table(looked):
    table = looked.columns.full()
    compared = looked.table.groups[0].rows[1].comparison  # Holm doubles the smaller of two
    place = table.columns.index("p (t-test)")
    assert table.columns[place : place + 3] == ["p (t-test)", "p (anytime)", "p (Holm)"]
    shown = [cell.text for cell in table.rows[1][place : place + 3]]
    difference = compared.difference
    p_values = (difference.p_value, difference.anytime_p, compared.adjusted_p)
    assert shown == [f"{p:.3g}" for p in p_values]
    assert len(set(shown)) == 3


def test_csv_has_the_interval_of_the_verdict_and_both(fixed, looked, tmp_path):
    for number, (record, kind) in enumerate(((fixed, "Student-t"), (looked, "anytime-valid"))):
        folder = record.runs[0].stored.directory.parent
        page = write_study_page(folder, record.table.study, tmp_path / f"{number}.html")
        text = io.StringIO(page.with_suffix(".csv").read_text())
        row = list(csv.DictReader(text))[2]
        difference = record.table.groups[0].rows[2].comparison.difference
        expected = {
            "interval": kind,
            "student_low": difference.low,
            "student_high": difference.high,
            "student_p": difference.p_value,
            "anytime_low": difference.anytime_low,
            "anytime_high": difference.anytime_high,
            "anytime_p": difference.anytime_p,
        }
        assert {key: row[key] for key in expected} == {k: str(v) for k, v in expected.items()}
        prefix = "student" if record is fixed else "anytime"
        for own, other in {"delta_low": "low", "delta_high": "high", "p": "p"}.items():
            assert row[own] == row[f"{prefix}_{other}"]


def test_stale_runs_are_in_the_table(tmp_path):
    reason = "3: the gate's source changed (my_gates.MyGate)"
    record = _record(tmp_path, gains=GAINS, plan=Plan(stale={"se": (reason,)}))
    table = record.columns.full()
    seeds = [row[table.columns.index("seeds")] for row in table.rows]
    assert [(cell.text, cell.small) for cell in seeds] == [
        ("5 / 5", ""),
        ("5 / 5", "3 stale"),
        ("5 / 5", ""),
    ]


WHY = "seeds were removed after their results had been seen"


def test_where_nothing_can_be_told_the_reason_is_given(tmp_path):
    record = _record(tmp_path, gains=GAINS, plan=Plan(cannot_tell=WHY))
    assert study_verdict(record) == (
        f"**No module** can be said to help or harm the plain resnet20 ({WHY})."
    )
    (group,) = record.table.groups
    rows = forest_rows(group)
    assert {row.standing for row in rows} == {"cannot tell"}
    svg = to_svg(forest_figure(rows, record.metric))
    assert set(re.findall(r'aria-label="(?:se|eca): [^"]*"[^>]*fill="([^"]+)"', svg)) == {GREY}
    assert "Grey means the interval contains zero, or that nothing can be told." in (
        study_page(record).sections[0].lead
    )
    table = record.columns.full()
    cell = table.rows[1][table.columns.index("verdict")]
    assert (cell.text, cell.small) == ("cannot tell", WHY)
    (alert,) = (a for a in alerts(record) if "cannot tell" in a.text)
    assert (alert.text, alert.detail, alert.tone) == (
        "cifar10, se, eca: cannot tell.",
        f"{WHY[:1].upper()}{WHY[1:]}.",
        "warn",
    )
    tones = {cell.tone for row in record.columns.main().rows for cell in row}
    assert not tones & {"gain", "loss"}


def test_what_cannot_be_told_of_some_modules_is_said():
    verdicts = {"se": {"c10": "better"}, "eca": {"c10": "cannot tell"}}
    assert verdict_sentence(verdicts, "the plain net", 5) == (
        "**se** beats the plain net on c10 by more than seed noise. Nothing can be told about "
        "**eca**: see the alerts."
    )
    verdicts = {"se": {"a": "no difference shown", "b": "cannot tell"}}
    assert verdict_sentence(verdicts, "the plain net", 5) == (
        "**No module** differs from the plain net by more than seed noise (5 seeds). Not "
        "everything can be told about **se**: see the alerts."
    )


def test_a_table_that_is_not_of_now_is_said_loudly(tmp_path):
    study = simulate(tmp_path, **ONE, gains=GAINS, seeds=3, finished=0.5)
    assert plan_alerts(read_record(tmp_path, study.name)) == []
    file = tmp_path / study.runs[0].folder / "result.json"
    content = file.read_text()
    file.unlink()
    (alert,) = plan_alerts(read_record(tmp_path, study.name))
    assert (alert.tone, alert.text) == ("bad", "The table is not of what is on disk now.")
    assert alert.detail == (
        "It was made when 4 of 9 runs were finished; now 3 of 9 are. `attnlab study show "
        "cifar-attention-v1.toml` makes it anew."
    )
    # As many runs, but another one.
    missing = next(entry for entry in study.runs if not (tmp_path / entry.folder).exists())
    (tmp_path / missing.folder).mkdir()
    own = content.replace(study.runs[0].run_id, missing.run_id)
    (tmp_path / missing.folder / "result.json").write_text(own)
    prove(tmp_path / missing.folder)
    record = read_record(tmp_path, study.name)
    assert len(record.finished) == len(record.table.finished)
    assert [alert.tone for alert in plan_alerts(record)] == ["bad"]
    write_table(tmp_path / "studies" / study.name, make_table(tmp_path, study))
    assert plan_alerts(read_record(tmp_path, study.name)) == []


def test_a_table_of_fewer_planned_runs_is_not_of_now(tmp_path):
    study = simulate(tmp_path, **ONE, gains=GAINS, seeds=2)
    directory = tmp_path / "studies" / study.name
    content = json.loads((directory / "table.json").read_text())
    (directory / "table.json").write_text(json.dumps({**content, "planned": 3}))
    assert read_table(directory).planned == 3
    assert [alert.tone for alert in plan_alerts(read_record(tmp_path, study.name))] == ["bad"]


def test_two_checksums_of_one_set_of_data_are_said_loudly(tmp_path):
    study = simulate(tmp_path, data=("cifar10", "stl10"), gains=GAINS, seeds=2, epochs=4)
    record = read_record(tmp_path, study.name)
    assert plan_alerts(record) == []
    entry = next(entry for entry in study.runs if entry.cell.data == "stl10")
    (tmp_path / entry.folder / "data.json").write_text(
        json.dumps({"name": "stl10", "checksum": "f" * 64})
    )
    prove(tmp_path / entry.folder)
    record = read_record(tmp_path, study.name)
    (alert,) = plan_alerts(record)
    first = b"stl10".hex().ljust(64, "0")
    assert (alert.tone, alert.text) == ("bad", "The runs on stl10 saw 2 different sets of data.")
    assert alert.detail == (
        f"Their checksums are {first[:12]}, {'f' * 12}. Rows and pairs mix them, so no verdict on "
        f"stl10 holds."
    )
    reproduce = study_page(record).sections[-1].parts
    (sums,) = (part.text for part in reproduce if getattr(part, "title", "").startswith("Data"))
    cifar = b"cifar10".hex().ljust(64, "0")
    assert sums == f"{cifar}  cifar10\n{first}  stl10\n{'f' * 64}  stl10"


def test_every_plan_is_listed(looked):
    reproduce = study_page(looked).sections[-1].parts
    (plans,) = (part for part in reproduce if getattr(part, "title", "").startswith("Every plan"))
    assert plans.parts[0].text == (
        "2023-11-14 22:13 UTC  seeds 0 1 2, 9 runs, 0 finished by then\n"
        "2023-11-15 22:13 UTC  seeds 0 1 2 3 4, 15 runs, 9 finished by then"
    )
