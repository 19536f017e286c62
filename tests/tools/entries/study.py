"""One small study with real training: 3 gates, 2 seeds, 2 epochs of digits."""

from __future__ import annotations

import csv
import functools
import re
import tempfile
from pathlib import Path

import torch
from tests.lab.study._small import HereExecutor, small_study
from tests.tools.entries.shared import picked, plain, rounding
from tests.tools.entries.statistics import DIFFERENCE

import attnlab

ROW = (
    "label plain seeds missing values by_seed best best_by_seed best_verdict parameters macs tns "
    "folded_parameters folded by_corruption equivalence"
)
TIMED = re.compile(r"speed|second|ms\b|millisecond|time|images/s")
"""Columns that depend on the clock."""
STORED = {"classes": "classes confusion", "corruptions": "clean mean rows"}
"""What these held before they were results, which say more."""
_KEPT: list[tempfile.TemporaryDirectory[str]] = []
"""Until the process ends, because several entries look at the same runs."""


@functools.cache
def _runs() -> Path:
    """The folder of the runs; trained once in a process."""
    from attnlab.lab.study import run_study

    _KEPT.append(tempfile.TemporaryDirectory(prefix="ledger"))
    out = Path(_KEPT[0].name) / "runs"
    torch.manual_seed(0)
    outcomes = run_study(_study(), out, HereExecutor())
    assert [each.status for each in outcomes] == ["done"] * 6
    return out


def _study() -> object:
    return small_study(
        attention=["none", "se", "asr:se"],
        seeds=2,
        measure={"images": 32, "inference_images": 0, "corruptions": 10, "every_epoch": True},
        equivalence={"to": "plain", "margin": 5.0},
    )


def _run(gate: str) -> Path:
    """The run of `gate` with seed 0, which the commands take."""
    from attnlab.results import StoredRun

    found = {
        (run.config.attention, run.config.seed): run.directory
        for run in (StoredRun(file.parent) for file in sorted(_runs().glob("*/result.json")))
    }
    return found[gate, 0]


def _record(value: object) -> object:
    """Plain data without what the clock decides."""
    if isinstance(value, dict):
        return {k: _record(v) for k, v in value.items() if not TIMED.search(k)}
    if isinstance(value, list | tuple):
        return [_record(each) for each in value]
    return value


def runs() -> object:
    from attnlab.results import StoredRun

    found = {}
    for file in sorted(_runs().glob("*/result.json")):
        run = StoredRun(file.parent)
        name = f"{run.config.attention} {run.config.seed}"
        found[name] = {
            "values": dict(run.result.values),
            "history": [_record(epoch.given()) for epoch in run.history],
        }
    return found


def measured() -> object:
    from attnlab.results import StoredRun

    run = StoredRun(_run("asr:se"))
    found: dict[str, object] = {}
    for name, measurement in run.measurements.items():
        if name == "stripe":
            continue
        value = _record(plain(measurement.found))
        if name in STORED and isinstance(value, dict):
            value = picked(value, STORED[name])
        if isinstance(value, dict) and "error" in value:
            value["error"] = rounding(value["error"])
        found[name] = value
    return found


def gates() -> object:
    from attnlab.instruments.stripe import StripeResult
    from attnlab.results import StoredRun

    found = StoredRun(_run("asr:se")).measured_result(StripeResult)
    assert found is not None
    return [picked(site, "label mean image_spread channel_spread") for site in found.sites]


def table() -> object:
    from attnlab.lab.study import show_study

    made = show_study(_study(), _runs())
    found = []
    for group in made.groups:
        for row in group.rows:
            shown = picked(row, ROW)
            shown["fold_error"] = rounding(row.fold_error)
            if row.comparison is not None:
                shown |= picked(row.comparison, "adjusted_p verdict sequential")
                shown["difference"] = picked(row.comparison.difference, DIFFERENCE)
            found.append(shown)
    return found


def markdown() -> object:
    from attnlab.lab.study import show_study
    from attnlab.lab.study.show import markdown

    lines = markdown(show_study(_study(), _runs())).splitlines()
    return _columns([line.strip("| ").split(" | ") for line in lines if line.startswith("| ")])


def _columns(lines: list[list[str]]) -> list[dict[str, str]]:
    """Rows under their headings, without columns that depend on the clock or on rounding."""
    heads: list[str] = []
    found = []
    for line in lines:
        if line[0] in ("module", "data"):
            heads = line
        elif line[0] != "---":
            pairs = zip(heads, line, strict=False)
            found.append({k: v.strip() for k, v in pairs if not _unstable(k)})
    return found


def _unstable(head: str) -> bool:
    return bool(TIMED.search(head)) or head.replace("_", " ") == "fold error"


@functools.cache
def _page() -> Path:
    return Path(attnlab.report(_runs(), _runs().parent / "report.html"))


def csv_file() -> object:
    with _page().with_suffix(".csv").open(encoding="utf-8", newline="") as file:
        return [
            {key: _number(value) for key, value in row.items() if not _unstable(key)}
            for row in csv.DictReader(file)
        ]


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def latex_file() -> object:
    text = _page().with_suffix(".tex").read_text(encoding="utf-8")
    return [line for line in text.splitlines() if "&" in line]


def verdict() -> object:
    from attnlab.lab.pages.verdict import study_verdict
    from attnlab.results.record import find_study, read_record

    return study_verdict(read_record(*find_study(_runs())))


def planned() -> object:
    from attnlab.lab.study import planned_runs

    return [[run.cell.row, run.seed, run.cell.group] for run in planned_runs(_study())]
