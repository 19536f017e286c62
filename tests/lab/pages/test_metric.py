"""The page knows no task: labels, units, digits and the better direction are the metrics'."""

from __future__ import annotations

import csv
import html
import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.lab.pages.simulated import CLASSIFICATION, REGRESSION, Simulated, simulate

import attnlab
from attnlab.lab.pages.alerts import alerts
from attnlab.lab.pages.figures import forest_figure
from attnlab.lab.pages.help import forest_rows
from attnlab.lab.pages.study_page import study_page
from attnlab.lab.pages.verdict import study_chips, study_verdict
from attnlab.lab.pages.write import write_study_page
from attnlab.page.plot import BLUE, RED, to_svg
from attnlab.results import Metric
from attnlab.results.record import StudyRecord, read_record

GAINS = {"se": 0.8, "eca": -0.8}


@pytest.fixture(scope="module")
def faces(tmp_path_factory) -> StudyRecord:
    """An error of which less is better: se lowers it, eca raises it."""
    out = tmp_path_factory.mktemp("faces")
    return _record(out, task=REGRESSION, data=("faces",), gains=GAINS, noise=0.05, epochs=4)


def _record(out: Path, **settings) -> StudyRecord:
    return read_record(out, simulate(out, **settings).name)


def test_less_is_better_in_words_colours_and_tables(faces):
    assert study_verdict(faces) == (
        "**se** beats the plain resnet20 on faces by more than seed noise. **eca** is worse than "
        "the plain resnet20 by more than seed noise. 1 of 2 modules shows no gain."
    )
    (group,) = faces.table.groups
    rows = forest_rows(group)
    assert [(row.module, row.mean < 0, row.standing) for row in rows] == [
        ("se", True, "gain"),
        ("eca", False, "loss"),
    ]
    svg = to_svg(forest_figure(rows, faces.metric))
    fills = dict(re.findall(r'aria-label="(\w+): [^"]*"[^>]*fill="([^"]+)"', svg))
    assert fills == {"se": BLUE, "eca": RED}
    assert [row[2].tone for row in faces.columns.main().rows] == ["", "gain", "loss"]


def test_no_word_of_classification_on_another_page(faces, tmp_path):
    folder = faces.runs[0].stored.directory.parent
    page = write_study_page(folder, faces.table.study, tmp_path / "page.html")
    text = html.unescape(page.read_text(encoding="utf-8"))
    seen = re.sub(r"<style>.*?</style>|<script>.*?</script>|base64,[\w+/=]*", "", text, flags=re.S)
    assert not re.search(r"top-?[15]|accurac|classif", seen, re.IGNORECASE)
    assert not re.search(r"\d pt\b", seen)
    assert "lower is better" in seen
    assert "Lower is better: a gain lies left of zero." in seen
    files = page.with_suffix(".csv").read_text() + page.with_suffix(".tex").read_text()
    assert not re.search(r"top-?[15]|accurac", files)


OF_CLASSES = {
    # `attnlab fold` and `shorten` judge by labels where images have classes
    "surgery/folding/page.py",
    "instruments/removal/page.py",
    "instruments/removal/figures.py",
    "instruments/stiffness/figures.py",  # TNS against accuracies that were given
}
"""Files that may speak of classes; no page of a study is made there."""
PAGES = (
    *("results/*.py", "page/*.py", "lab/pages/*.py", "instruments/block_figures.py"),
    *(f"instruments/*/{name}.py" for name in ("figures", "page", "section", "section_figures")),
    *("instruments/stiffness/surfaces.py", "instruments/stripe/stripes.py"),
    *("surgery/folding/page.py", "surgery/folding/figures.py"),
)
"""What pages are made of, and the parts of them."""


def test_no_word_of_a_task_in_the_source():
    source = Path(attnlab.__file__).parent
    files = [file for pattern in PAGES for file in sorted(source.glob(pattern))]
    assert len(files) > 50
    for file in files:
        name = file.relative_to(source).as_posix()
        if name in OF_CLASSES:
            continue
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            # Examples in docstrings may name one.
            code = re.sub(r"`[^`]*`", "", line)
            assert not re.search(r"top-?[15]|accurac", code), f"{name}:{number}"


def test_numbers_are_in_the_unit_and_the_digits_of_the_metric(faces):
    (group,) = faces.table.groups
    table = faces.columns.full()
    values = [1000 * run.result.values["mae"] for run in faces.of(group, "se")]
    mean = sum(values) / len(values)
    assert table.columns[2:6] == ["mean |error| mm", "best epoch mm", "paper mm", "Δ mm"]
    assert table.rows[1][2].text == f"{mean:.4f}"
    assert faces.columns.main().rows[0][1].text == f"{group.rows[0].values['mae'].mean:.4f}"
    difference = group.rows[1].comparison.difference
    assert table.rows[1][5].text == f"{difference.mean:+.4f}"
    assert table.rows[1][5].small == f"[{difference.low:+.4f}, {difference.high:+.4f}]"
    assert table.rows[0][4].text == "0.3080 ± 0.0030"
    text = faces.columns.for_latex().to_latex()
    assert f"{mean:.4f} $\\pm$" in text
    assert "% cifar-attention-v1: mean |error| mm, lower is better; mean" in text


def test_curves_are_of_the_metric(faces):
    (group,) = faces.table.groups
    cost = study_page(faces).sections[1]
    curves = cost.parts[-1].figures[-1].spec["data"]["values"]
    for row in ("plain", "se", "eca"):
        runs = faces.of(group, row)
        for epoch in range(1, 5):
            (shown,) = (c for c in curves if (c["module"], c["epoch"]) == (row, epoch))
            values = [1000 * run.stored.history[epoch - 1].test["mae"] for run in runs]
            found = (shown["mean"], shown["low"], shown["high"])
            assert found == pytest.approx((sum(values) / 5, min(values), max(values)))


def _csv_rows(record):
    """Of the CSV file, with numbers as numbers and None for what is empty."""
    lines = csv.DictReader(io.StringIO(record.columns.values().to_csv()))
    return [{name: _csv_value(text) for name, text in line.items()} for line in lines]


def _csv_value(text):
    try:
        return float(text)
    except ValueError:
        return text or None


def test_every_metric_has_a_column(faces, tmp_path):
    assert "R²" in faces.columns.full().columns
    place = faces.columns.full().columns.index("R²")
    assert [row[place].text for row in faces.columns.full().rows] == ["0.500"] * 3
    record = _record(tmp_path, data=("cifar10",), gains=GAINS, seeds=2, epochs=4)
    assert {"top-5 %", "test loss"} < set(record.columns.full().columns)
    row = _csv_rows(record)[0]
    assert (row["top5"], row["top5_std"], row["loss"]) == (50.0, 0.0, 0.5)


def test_columns_of_metrics_with_names_that_are_taken_do_not_vanish(tmp_path):
    metrics = tuple(
        Metric(name=name, label=name) for name in ("p", "tns", "std", "loss", "loss_std")
    )
    task = Simulated(metrics, {"cifar10": 0.7})
    record = _record(tmp_path, task=task, data=("cifar10",), gains=GAINS, seeds=2, epochs=4)
    row = _csv_rows(record)[1]
    compared = record.table.groups[0].rows[1]
    assert row["metric_p"] == compared.values["p"].mean
    assert row["p"] == compared.comparison.p_value
    assert (row["tns"], row["metric_tns"]) == (compared.tns.mean, 0.5)
    assert (row["metric_std"], row["loss"], row["loss_std"]) == (0.5, 0.5, 0.0)
    assert row["metric_loss_std"] == 0.5
    assert row["paper_std"] is None


def test_best_epoch_takes_off_where_less_is_better(faces):
    (alert,) = (a for a in alerts(faces) if a.text == "Results are of the last epoch.")
    gaps = [1000 * (run.result.value - run.result.best_value) for run in faces.runs]
    mean = sum(gaps) / len(gaps)
    assert mean >= 0
    assert alert.detail == (
        f"Choosing the best epoch by mean |error| of the test images would take off {mean:.4f} mm "
        f"on average, off the plain backbone as well."
    )


@pytest.mark.parametrize(
    ("task", "data", "above", "text", "weak"),
    [
        (REGRESSION, "faces", 1.0, "mm over", True),
        (REGRESSION, "faces", -1.0, "mm under", False),
        (CLASSIFICATION, "cifar10", 1.0, "pt under", True),
        (CLASSIFICATION, "cifar10", -1.0, "pt over", False),
    ],
)
def test_weak_is_what_is_worse(tmp_path, task, data, above, text, weak):
    record = _record(tmp_path, task=task, data=(data,), gains=GAINS, epochs=4, above=above)
    chips = {chip.text: chip.tone for chip in study_chips(record)}
    (found,) = (chip for chip in chips if chip.startswith("baseline"))
    plain = record.table.groups[0].plain
    gap = plain.values[record.metric.name].mean - plain.paper[record.metric.name].mean
    size = f"{abs(gap):.{record.metric.digits - 1}f}"
    assert found == f"baseline {data} {size} {text} reference"
    assert chips[found] == ("warn" if weak else "good")
    assert any("Weak baseline" in alert.text for alert in alerts(record)) == weak


def test_without_any_spread_no_baseline_is_called_weak_or_good(tmp_path):
    settings = {"task": REGRESSION, "data": ("faces",), "gains": GAINS, "epochs": 4}
    record = _record(tmp_path, **settings, above=1.0, seeds=1)
    (group,) = record.table.groups
    plain, *others = group.rows
    bare = replace(plain, paper={"mae": replace(plain.paper["mae"], std=None)})
    groups = (replace(group, rows=(bare, *others)),)
    record = replace(record, table=replace(record.table, groups=groups))
    (chip,) = (chip for chip in study_chips(record) if chip.text.startswith("baseline"))
    assert chip.tone == "neutral"
    assert not any("Weak" in alert.text for alert in alerts(record))


COLUMNS = (
    "data,backbone,module,seeds,missing_seeds,top1,top1_std,best_epoch_top1,delta,delta_low,"
    "delta_high,p,p_holm,verdict,parameters,macs,train_images_per_second,"
    "inference_images_per_second,tns,tns_std,fold_error,folded_parameters,folded_top1,paper_top1,"
    "paper_std"
)


def test_columns_of_the_csv_of_a_classification(tmp_path):
    study = simulate(tmp_path, data=("cifar10",), gains=GAINS, seeds=2, epochs=4)
    page = write_study_page(tmp_path, study.name, tmp_path / "page.html")
    with page.with_suffix(".csv").open() as file:
        found = next(csv.reader(file))
    assert found[: found.index("interval")] == COLUMNS.split(",")
