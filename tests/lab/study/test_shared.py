"""A table that others add rows to: what enters, what is refused, and the one that is published."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from tests.lab.study._small import HereExecutor, small_study

from attnlab._errors import InputError, UnknownNameError
from attnlab.cli import main
from attnlab.instruments.corruptions.result import CorruptionsResult
from attnlab.lab.study import (
    SharedTable,
    load_study,
    planned_runs,
    run_study,
    shared,
    submit_rows,
)
from attnlab.lab.study.shared import SharedRow, SharedRun, check_row
from attnlab.lab.study.speed import time_study
from attnlab.lab.study.store import Store
from attnlab.results.environment import processor
from attnlab.results.manifest import write_manifest
from attnlab.results.speed import read_speed
from attnlab.results.study import read_study

ROOT = Path(__file__).parents[3]
PUBLISHED = ROOT / "docs" / "tables" / "gates-digits-resnet20.json"
WIDER = {"backbone_options": {"parameters": 280_000}}
LARGE = {"name": "resnet20", "options": WIDER["backbone_options"]}
WIDE = [{"gate": "none", "label": "wider", **WIDER}, {"gate": "se", "label": "both", **WIDER}]
MEASURED: dict[str, Any] = {"measure": {"images": 16, "inference_images": 0, "corruptions": 8}}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of two seeds, the same with another recipe, another gate with one seed, and a wider
    network, plain and with a gate."""
    out = tmp_path_factory.mktemp("runs")
    slower = {"name": "digits", "epochs": 2, "batch_size": 50, "lr": 0.05}
    for study in (
        small_study(seeds=2, **MEASURED),
        small_study(name="slower", seeds=2, recipe=slower),
        small_study(name="single", attention=["none", "eca"]),
        small_study(name="wide", attention=WIDE, seeds=2),
        small_study(name="large", backbone=LARGE, attention=["none"], seeds=2),  # as `wider`
    ):
        run_study(study, out, HereExecutor())
    return out


@pytest.fixture
def runs(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "runs")
    return tmp_path / "runs"


def begun(runs: Path) -> Path:
    table = runs.parent / "table.json"
    submit_rows("small", table, runs, add=True)
    return table


def test_a_table_is_begun_and_has_what_the_runs_have(runs: Path) -> None:
    found = SharedTable.load(begun(runs))
    assert [row.label for row in found.rows] == ["plain", "se"]
    assert found.seeds == (0, 1)
    for row, entries in zip(found.rows, ([0, 2], [1, 3]), strict=True):
        for run, number in zip(row.runs, entries, strict=True):
            stored = read_study(runs / "studies" / "small").runs[number].stored_in(runs)
            assert (run.run_id, run.value) == (stored.result.run_id, stored.result.value)
            assert run.tns is not None
            assert (run.constancy is None) == row.plain
            robust = stored.measured_result(CorruptionsResult)
            assert robust is not None
            assert run.corrupted == robust.mean.top1
        assert row.time is None  # the study was not timed
    assert found.table().columns[:3] == ["module", "top-1 %", "Δ"]
    assert "Of 1 rows" in found.verdict


def test_times_are_those_of_the_study_and_no_part_of_what_a_row_is(runs: Path) -> None:
    """Timed later, on another machine: the row that is there stays as it is."""
    without = begun(runs)
    time_study(Store(runs), read_study(runs / "studies" / "small"), 8, again=True)
    other = runs.parent / "other.json"
    again = submit_rows("small", without, runs, add=True)
    assert (again.refused, again.table.row("se").time) == ({}, None)
    timed = submit_rows("small", other, runs, add=True).table
    stored = read_speed(runs / "studies" / "small")
    assert stored is not None
    (group,) = stored.groups.values()
    time = timed.row("se").time
    assert time is not None
    assert (time.ratio, time.low, time.high) == (
        group.rows["se"].ratio,
        group.rows["se"].low,
        group.rows["se"].high,
    )
    assert time.processor == group.processor
    assert timed.row("se").folded_time is None  # its gate depends on the image
    assert timed.plain.time is None


def with_values(label: str, *values: float) -> SharedRow:
    runs = tuple(
        SharedRun(seed, f"{label}{seed}", value, 1, 1, None, None)
        for seed, value in enumerate(values)
    )
    return SharedRow(label, label == "plain", {}, {}, runs)


def test_how_many_seeds_tell_two_rows_apart() -> None:
    """Differences of 2, 0, 1 and 1 points have the mean 1 and the spread √(2/3); the number is
    where simulated t-tests reach the power of 80 %, and one less does not."""
    published = SharedTable.load(PUBLISHED)
    table = replace(
        published,
        seeds=(0, 1, 2, 3),
        rows=(
            with_values("plain", 0.90, 0.91, 0.92, 0.93),
            with_values("a", 0.92, 0.91, 0.93, 0.94),
            with_values("b", 0.93, 0.92, 0.94, 0.95),
        ),
    )
    found = table.difference("a", "plain")
    assert found.mean == pytest.approx(1)
    assert found.std == pytest.approx((2 / 3) ** 0.5)
    number = table.seeds_to_tell("a", "plain")
    assert number is not None
    draws = np.random.default_rng(0).normal(1, (2 / 3) ** 0.5, (4000, number))
    powers = [
        (stats.ttest_1samp(draws[:, :n], 0, axis=1).pvalue < 0.05).mean()
        for n in (number - 1, number)
    ]
    assert powers[0] < 0.81
    assert powers[1] > 0.79
    assert table.seeds_to_tell("a", "b") is None  # the same difference for every seed
    with pytest.raises(UnknownNameError, match=r"Unknown row 'pain'. Did you mean 'plain'"):
        table.seeds_to_tell("pain", "a")


def test_the_same_again_changes_nothing(runs: Path) -> None:
    table = begun(runs)
    before = table.read_text(encoding="utf-8")
    found = submit_rows("small", table, runs, add=True)
    assert not found.refused
    assert table.read_text(encoding="utf-8") == before


def test_a_check_writes_nothing_and_needs_a_table(runs: Path) -> None:
    with pytest.raises(InputError, match=r"There is no .* With --add the study begins one"):
        submit_rows("small", runs.parent / "table.json", runs)


def test_another_recipe_is_refused(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = begun(runs)
    before = table.read_text(encoding="utf-8")
    command = ["study", "submit", "slower", "--table", str(table), "--out", str(runs), "--add"]
    with pytest.raises(SystemExit):
        main(command)
    printed = capsys.readouterr().out
    assert (
        "se: refused. It was not made by the table's plan: recipe.lr was 0.1, is 0.05." in printed
    )
    assert table.read_text(encoding="utf-8") == before


def test_a_wider_network_is_a_row_only_without_a_gate(runs: Path) -> None:
    """The control that has as many parameters; with a gate in it nobody knows which of the two
    did it."""
    table = begun(runs)
    found = submit_rows("wide", table, runs, add=True)
    wanted = "It was not made by the table's plan: backbone_options.parameters was left out, is 280"
    assert list(found.refused) == ["both"]
    assert found.refused["both"].startswith(wanted)
    wider, plain = (SharedTable.load(table).row(label) for label in ("wider", "plain"))
    assert wider.gate == WIDER
    assert plain.gate == {}
    assert not wider.plain
    assert abs(wider.runs[0].parameters - 280_000) < 150
    assert SharedTable.load(table).judged().keys() == {"se", "wider"}


def test_a_table_of_a_network_with_options_takes_gates_in_that_network(runs: Path) -> None:
    """And other networks without gates; only that both plain rows have one label is refused."""
    table = runs.parent / "table.json"
    submit_rows("large", table, runs, add=True)
    found = submit_rows("wide", table, runs)
    assert found.fitting == ("both",)
    assert found.refused["wider"] == "The same runs are in the table already, as 'plain'."
    found = submit_rows("small", table, runs)
    assert found.refused["plain"].startswith("The table has another row 'plain'")
    wanted = (
        "It was not made by the table's plan: backbone_options.parameters was 280000, is left out"
    )
    assert found.refused["se"].startswith(wanted)


def test_a_missing_seed_is_refused(runs: Path) -> None:
    found = submit_rows("single", begun(runs), runs)
    assert found.refused["eca"] == "Expected runs of the seeds [0, 1]: [1] are missing."


def test_a_row_that_is_not_finished_is_refused(runs: Path) -> None:
    table = begun(runs)
    shutil.rmtree(entry_folder(runs, 3))
    found = submit_rows("small", table, runs)
    assert found.refused == {"se": "Its runs of the seeds [1] are not finished."}


@pytest.mark.parametrize("what", ["settings", "sources"])
def test_a_gate_that_is_another_for_one_seed_is_refused(
    what: str, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, read = begun(runs), shared._checked_identity

    def changed(table: SharedTable, stored: Any, seed: int) -> Any:
        identity = read(table, stored, seed)
        if seed == 0:
            return identity
        other = {"where": "every"} if what == "settings" else {"mine.Gate": "0" * 64}
        return identity.model_copy(update={what: {**getattr(identity, what), **other}})

    monkeypatch.setattr(shared, "_checked_identity", changed)
    assert submit_rows("small", table, runs).refused["se"] == (
        "Expected one gate for all seeds but its settings or its source differ."
    )


def entry_folder(runs: Path, number: int) -> Path:
    return runs / read_study(runs / "studies" / "small").runs[number].folder


def test_a_result_that_the_weights_do_not_have_is_refused(runs: Path) -> None:
    table = begun(runs)
    folder = entry_folder(runs, 3)
    claimed = {"values": {"top1": 0.98}, "best_value": 0.98, "best_epoch": 2}
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    (folder / "result.json").write_text(json.dumps({**result, **claimed}), encoding="utf-8")
    first, last = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    forged = json.dumps({**json.loads(last), "test": {"top1": 0.98}})
    (folder / "metrics.jsonl").write_text(f"{first}\n{forged}\n", encoding="utf-8")
    (folder / "digest.json").unlink(missing_ok=True)
    write_manifest(folder, result["run_id"])  # so that the files are whole
    found = submit_rows("small", table, runs)
    assert "says 98.00 %, but its weights have" in found.refused["se"]


def test_a_run_of_another_seed_than_it_says_is_refused(runs: Path) -> None:
    table = begun(runs)
    one, other = entry_folder(runs, 1), entry_folder(runs, 3)
    shutil.rmtree(other)
    shutil.copytree(one, other)
    found = submit_rows("small", table, runs)
    assert list(found.refused) == ["se"]


def section_follows_from(found: SharedTable, heading: str) -> str:
    """Check that every row of a page's section is that of the table; return the section."""
    page = (ROOT / "docs" / "papers-small.md").read_text(encoding="utf-8").replace("−", "-")
    shown = page.partition(f"## {heading}\n")[2].partition("\n## ")[0].splitlines()
    assert all(len(row.runs) == 5 for row in found.rows)
    for cells in found.table().rows[1:]:
        label, top1, difference, p_value, *_ = map(str, cells)
        (line,) = (each for each in shown if each.startswith(f"| `{label}` |"))
        assert line.startswith(f"| `{label}` | {top1} | {difference} | {p_value} |")
        time = cells[found.table().columns.index("time")]
        assert line.endswith(f" | {time} |")
    return " ".join(shown)


def test_the_published_table_is_of_the_plan_and_its_page() -> None:
    """Its runs are those that `all-gates` plans, and what the page says follows from it."""
    found = SharedTable.load(PUBLISHED)
    planned = {run.run_id for run in planned_runs(load_study("all-gates").with_threads(1))}
    assert {name for row in found.rows for name in row.ids} == planned
    number = found.seeds_to_tell("se", "cbam")
    assert f"It takes {number} seeds to tell SE from CBAM" in section_follows_from(
        found, "Every gate in one network"
    )


def made_here() -> bool:
    """Whether this machine rounds as that which made the published table: another kind of
    processor or another torch gives other last digits, so after five epochs other networks."""
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    same = torch.backends.cpu.get_cpu_capability() == "AVX512" and processor() == "AMD EPYC"
    return same and f"torch=={torch.__version__.partition('+')[0]}\n" in text


@pytest.mark.slow
def test_a_row_of_the_published_table_is_regenerated(tmp_path: Path) -> None:
    """The five networks of SE are trained anew. Elsewhere their mean is what another kind of
    processor may make of it: the plain networks of two kinds differ by 0.11 points."""
    table = SharedTable.load(PUBLISHED)
    study = load_study("all-gates")
    chosen = study.model_copy(update={"attention": study.attention[1:2]})
    run_study(chosen, tmp_path, HereExecutor())
    entries = read_study(tmp_path / "studies" / chosen.name).runs
    made, published = check_row(table, entries, tmp_path), table.row("se")
    assert (made.gate, made.ids) == (published.gate, published.ids)
    for run, other in zip(made.runs, published.runs, strict=True):
        assert (run.parameters, run.macs) == (other.parameters, other.macs)
    mean, wanted = (np.mean([run.value for run in row.runs]) for row in (made, published))
    assert mean == pytest.approx(wanted, abs=0 if made_here() else 0.01)
    if made_here():
        assert made.same_as(published)


def test_the_interval_for_any_time_is_that_of_its_closed_form() -> None:
    """t*² = (n − 1)(A − 1) / (1 − A / (1 + n)), A = (√(1 + n) / 0.05)^(2 / n): 3.78 spreads for
    five seeds."""
    table = SharedTable.load(PUBLISHED)
    n = len(table.seeds)
    ratio = ((1 + n) ** 0.5 / 0.05) ** (2 / n)
    around = ((n - 1) * (ratio - 1) / (1 - ratio / (1 + n)) / n) ** 0.5
    assert around == pytest.approx(3.78, abs=0.005)
    (cells,) = (cells for cells in table.table().rows if str(cells[0]) == "sem")
    seeds = [table.row(name).by_seed(table.metric) for name in ("sem", "plain")]
    found = np.array([seeds[0][seed] - seeds[1][seed] for seed in table.seeds])
    low, high = (found.mean() + sign * around * found.std(ddof=1) for sign in (-1, 1))
    assert str(cells[table.table().columns.index("Δ at any time")]) == f"[{low:+.2f}, {high:+.2f}]"


def test_the_table_of_another_network_is_that_of_its_page() -> None:
    found = SharedTable.load(PUBLISHED.with_name("gates-cifar10-regnetx200mf.json"))
    verdicts = [each.verdict for each in found.judged().values()]
    assert (verdicts.count("worse"), verdicts.count("better"), len(verdicts)) == (14, 0, 24)
    shown = section_follows_from(found, "Every gate in another network, on a part of CIFAR-10")
    assert "Fourteen of 24 gates are shown to make a RegNetX-200MF worse" in shown
    assert found.seeds_to_tell("se", "cbam") == 7
    assert "seven seeds would tell them apart" in shown
