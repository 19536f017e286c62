"""What was seen stays seen: whatever name, folder or copy a study gets."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.lab.study._results import finish, study

from attnlab.cli import main
from attnlab.lab.study import Store, Study, show_study
from attnlab.lab.study.current import refresh
from attnlab.lab.study.looking import share_of
from attnlab.lab.study.plan import write_plan
from attnlab.results import StoredRun
from attnlab.results.manifest import write_manifest
from attnlab.results.study import read_plans
from attnlab.results.table import Comparison, StudyTable

DIFFERENCES = (0.003, 0.024, 0.009, 0.019, 0.005, 0.018, 0.011, 0.016)
"""Six of them are better by the t-test, and show no difference by the anytime test."""


def value(row: str, seed: int) -> float:
    return 0.8 + (0.0 if row == "plain" else DIFFERENCES[seed]) + 0.001 * (row == "eca")


def large(row: str, seed: int) -> float:
    """Differences that every test shows."""
    return 0.5 + 0.001 * (seed % 3) + (0.0 if row == "plain" else 0.2 + 0.001 * (seed % 2))


def mine(seeds: int, rows: list[str] | None = None, name: str = "small") -> Study:
    return study(seeds, rows or ["none", "se"], name=name)


def comparison(table: StudyTable, label: str = "se") -> Comparison:
    found = next(row for row in table.groups[0].rows if row.label == label).comparison
    assert found is not None
    return found


def verdict(out: Path, chosen: Study, label: str = "se") -> str:
    return comparison(show_study(chosen, out), label).verdict


@pytest.fixture
def looked(tmp_path: Path) -> Path:
    """Three seeds were seen and three more added."""
    finish(tmp_path / "runs", mine(3), value)
    finish(tmp_path / "runs", mine(6), value)
    assert verdict(tmp_path / "runs", mine(6)) == "no difference shown"
    return tmp_path / "runs"


@pytest.fixture
def fixed(tmp_path: Path) -> Path:
    """Six seeds were planned beforehand."""
    finish(tmp_path / "runs", mine(6), value)
    assert verdict(tmp_path / "runs", mine(6)) == "better"
    return tmp_path / "runs"


def test_a_copy_of_the_file_under_another_name(looked: Path) -> None:
    again = mine(6, name="again")
    assert verdict(looked, again) == "cannot tell"  # before and after it is planned
    write_plan(Store(looked), again)
    table = show_study(again, looked)
    assert comparison(table).verdict == "cannot tell"
    assert comparison(table).note.startswith("runs had been seen before the first plan")
    assert (
        "1 row of digits resnet20 had been seen before the first plan of this study: there are "
        "only verdicts that hold however often somebody had looked" in table.changes
    )


def test_the_command_line_is_not_fooled_by_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    file = """
data = { name = "digits", train_subset = 100, test_subset = 50 }
backbone = "resnet20"
attention = ["none", "se"]
seeds = 6
recipe = { name = "digits", epochs = 2, batch_size = 50 }
measure = { images = 0, inference_images = 0 }
"""
    for seeds in (3, 6):
        finish(tmp_path / "runs", mine(seeds, name="mine"), value)
    Path("mine.toml").write_text(file)
    shutil.copy("mine.toml", "again.toml")
    for name, expected in (("mine", "no difference shown"), ("again", "cannot tell")):
        write_plan(Store(tmp_path / "runs"), mine(6, name=name))
        main(["study", "status", f"{name}.toml"])
        assert "12 done" in capsys.readouterr().out
        main(["study", "show", f"{name}.toml"])
        printed = " ".join(capsys.readouterr().out.split())
        assert expected in printed
        assert "had been seen" in printed


def test_a_study_that_was_fixed_is_not_called_otherwise_under_another_name(fixed: Path) -> None:
    assert verdict(fixed, mine(6, name="again")) == "cannot tell"


def test_what_holds_in_any_case_holds_under_another_name(tmp_path: Path) -> None:
    finish(tmp_path, mine(8), large)
    assert verdict(tmp_path, mine(8)) == "better"
    assert verdict(tmp_path, mine(8, name="again")) == "better"
    assert comparison(show_study(mine(8, name="again"), tmp_path)).sequential


def test_copied_runs_in_another_folder(looked: Path, tmp_path: Path) -> None:
    for folder in looked.iterdir():
        if folder.name != "studies":
            shutil.copytree(folder, tmp_path / "other" / folder.name)
    write_plan(Store(tmp_path / "other"), mine(6))
    assert verdict(tmp_path / "other", mine(6)) == "cannot tell"


def test_seeds_added_under_another_name(tmp_path: Path) -> None:
    finish(tmp_path, mine(3), value)
    finish(tmp_path, mine(6, name="again"), value)
    table = show_study(mine(6, name="again"), tmp_path)
    assert comparison(table).verdict == "no difference shown"
    assert comparison(table).sequential
    assert table.changes[0].startswith("seeds 3 to 5 were added on 20")


def test_seeds_left_out_under_another_name(tmp_path: Path) -> None:
    finish(tmp_path, mine(8), large)
    again = study([1, 2, 3, 4, 5, 6, 7], ["none", "se"], name="again")
    table = show_study(again, tmp_path)
    assert comparison(table).verdict == "cannot tell"
    assert "seed 0 had been seen and was removed: no verdict" in table.changes


def without_first(lines: list[str]) -> list[str]:
    return lines[1:]


def without_last(lines: list[str]) -> list[str]:
    return lines[:-1]


def reordered(lines: list[str]) -> list[str]:
    return lines[::-1]


def earlier(lines: list[str]) -> list[str]:
    """A plan that pretends to be older than its runs."""
    last = json.loads(lines[-1])
    return [*lines[:-1], json.dumps({**last, "time": 1.0}) + "\n"]


@pytest.mark.parametrize("damage", [without_first, without_last, reordered, earlier, None])
def test_plans_that_are_not_as_they_were_written(
    looked: Path, damage: Callable[[list[str]], list[str]] | None
) -> None:
    file = looked / "studies" / "small" / "plans.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    assert len(lines) == 2
    if damage is None:
        file.unlink()
    else:
        file.write_text("".join(damage(lines)))
    for _ in range(2):  # to plan it again does not make it whole
        table = show_study(mine(6), looked)
        assert comparison(table).verdict == "cannot tell"
        assert comparison(table).note == (
            "the plans of the study are not all known, so neither is what was added after a look"
        )
        assert any(note.startswith(f"{file} is damaged") for note in table.notes)
        write_plan(Store(looked), mine(6))


def test_a_renamed_study(looked: Path) -> None:
    (looked / "studies" / "small").rename(looked / "studies" / "other")
    assert verdict(looked, mine(6, name="other")) == "no difference shown"
    assert verdict(looked, mine(6)) == "cannot tell"


def test_a_study_whose_folder_is_gone(looked: Path) -> None:
    shutil.rmtree(looked / "studies")
    assert verdict(looked, mine(6)) == "cannot tell"


def test_a_run_that_is_finished_again_was_finished_before(looked: Path) -> None:
    """To remove its result and run the study again does not make it unseen."""
    for folder in looked.glob("*/result.json"):
        stored = StoredRun(folder.parent)
        before, text = stored.finished_at, folder.read_text()
        folder.unlink()
        assert StoredRun(folder.parent).finished_at is None
        folder.write_text(text)
        write_manifest(folder.parent, folder.parent.name)
        assert StoredRun(folder.parent).finished_at == before


def test_a_row_added_after_a_look_is_priced(tmp_path: Path) -> None:
    finish(tmp_path, mine(8), large)
    finish(tmp_path, mine(8, ["none", "se", "eca"]), large)
    table = show_study(mine(8, ["none", "se", "eca"]), tmp_path)
    se, eca = comparison(table), comparison(table, "eca")
    assert (se.sequential, eca.sequential) == (False, True)
    assert se.adjusted_p == se.p_value  # what was planned beforehand stays what it was
    assert eca.p_value is not None
    assert eca.adjusted_p == pytest.approx(min(1.0, eca.p_value / share_of(1)))
    (change,) = table.changes
    assert change.startswith("row eca of digits resnet20 was added on 20")
    assert change.endswith(
        "after others had been seen: verdicts on it are by anytime-valid intervals, at 1/2 of the "
        "error rate"
    )
    assert refresh(Store(tmp_path), "small").changes == table.changes


def test_rows_added_before_anything_was_seen_are_not_priced(tmp_path: Path) -> None:
    write_plan(Store(tmp_path), mine(6))
    finish(tmp_path, mine(6, ["none", "se", "eca"]), value)
    table = show_study(mine(6, ["none", "se", "eca"]), tmp_path)
    assert not comparison(table, "eca").sequential
    assert table.changes == ()


def test_a_baseline_that_is_shared_is_not_a_look(tmp_path: Path) -> None:
    finish(tmp_path, study(6, ["none"], name="first"), value)
    finish(tmp_path, mine(6), value)
    table = show_study(mine(6), tmp_path)
    assert comparison(table).verdict == "better"
    assert (table.sequential, table.changes) == (False, ())


def test_rows_that_others_compared_with_the_same_runs_are_listed(tmp_path: Path) -> None:
    finish(tmp_path, mine(6, ["none", "eca"], name="first"), value)
    finish(tmp_path, mine(6), value)
    table = show_study(mine(6), tmp_path)
    assert table.changes == (
        "row eca of the study first was compared with the same baseline of digits resnet20 as well",
    )
    assert comparison(table).adjusted_p == comparison(table).p_value


def test_a_row_dropped_under_another_name_counts(tmp_path: Path) -> None:
    """It is better alone, by the anytime test too, but not among those that were looked at."""

    def clear(row: str, seed: int) -> float:
        return large(row, seed) if row == "se" else 0.5 + 0.01 * ((seed * len(row)) % 3)

    rows = ["none", "se", "eca", "srm", "sge"]
    finish(tmp_path, mine(5, rows), clear)
    alone = mine(5, name="again")
    table = show_study(alone, tmp_path)
    assert comparison(table).verdict == "cannot tell"
    assert any(
        "rows eca, srm, sge of the study small were compared" in text for text in table.changes
    )


def test_a_row_that_is_edited_after_a_look_is_another(tmp_path: Path) -> None:
    """Rows are told apart by what they are made from, not by their label."""
    finish(tmp_path, mine(8), large)
    edited: Any = {"gate": "se", "label": "se", "options": {"reduction": 8}}
    changed = study(8, ["none", edited])
    finish(tmp_path, changed, large)
    found = comparison(show_study(changed, tmp_path))
    assert found.sequential
    assert found.p_value is not None
    assert found.adjusted_p == pytest.approx(min(1.0, found.p_value / share_of(1)))


def test_a_row_that_gets_another_label_is_the_same(tmp_path: Path) -> None:
    finish(tmp_path, mine(6), value)
    renamed: Any = {"gate": "se", "label": "squeeze"}
    table = show_study(study(6, ["none", renamed]), tmp_path)
    assert comparison(table, "squeeze").verdict == "better"
    assert table.changes == ()


def test_the_shares_add_up() -> None:
    assert share_of(0) == 1
    assert sum(share_of(batch) for batch in range(1, 10_000)) == pytest.approx(1, abs=1e-3)


def test_every_line_follows_the_one_before(looked: Path) -> None:
    found = read_plans(looked / "studies" / "small")
    assert (len(found.plans), found.damage) == (2, "")
    lines = (looked / "studies" / "small" / "plans.jsonl").read_text().splitlines()
    first, second = map(json.loads, lines)
    assert (first["before"], second["before"]) == ("", first["checksum"])
