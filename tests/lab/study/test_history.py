"""A study that is looked at and changed: what counts, what is said, what is never mixed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.lab.study._results import finish, noisy, study
from tests.lab.study._small import HereExecutor, small_study

from attnlab.lab.study import Store, Study, run_study, run_until_decided, show_study, study_status
from attnlab.lab.study.current import refresh
from attnlab.lab.study.plan import present, write_plan
from attnlab.lab.study.show import study_footnotes
from attnlab.lab.study.status import seeds_for_effect
from attnlab.results import Metric
from attnlab.results.columns import StudyColumns
from attnlab.results.manifest import write_manifest
from attnlab.results.study import read_plans

GATE = """
from attnlab.gates import BranchGate

class MyGate(BranchGate):
    def __init__(self, channels):
        super().__init__()

    def forward(self, x):
        return x.mean((2, 3), keepdim=True).sigmoid()
"""


def row(out: Path, chosen: Study, label: str = "se") -> Any:
    (group,) = show_study(chosen, out).groups
    return next(row for row in group.rows if row.label == label)


def test_a_number_of_seeds_that_was_fixed_beforehand_has_students_interval(tmp_path: Path) -> None:
    finish(tmp_path, study(6), noisy)
    table = show_study(study(6), tmp_path)
    assert not table.sequential
    assert table.changes == ()
    assert len(read_plans(Store(tmp_path).study_directory("small")).plans) == 1


def test_seeds_added_after_a_look_are_said_and_change_the_interval(tmp_path: Path) -> None:
    finish(tmp_path, study(3), noisy)
    finish(tmp_path, study(6), noisy)
    table = show_study(study(6), tmp_path)
    assert table.sequential
    (change,) = table.changes
    assert change.startswith("seeds 3 to 5 were added on 20")
    assert change.endswith(", after 9 runs had been seen: verdicts are by anytime-valid intervals")
    comparison = row(tmp_path, study(6)).comparison
    assert comparison.sequential
    assert comparison.low == comparison.difference.anytime_low
    assert comparison.low < comparison.difference.low
    assert change in study_footnotes(table)
    # All of it is on disk: another process reads the same.
    assert refresh(Store(tmp_path), "small").sequential


def test_seeds_added_before_anything_was_seen_are_no_look(tmp_path: Path) -> None:
    write_plan(Store(tmp_path), study(3))
    finish(tmp_path, study(6), noisy)
    assert not show_study(study(6), tmp_path).sequential


def test_a_row_that_is_dropped_stays_in_the_family(tmp_path: Path) -> None:
    finish(tmp_path, study(6), noisy)
    whole = row(tmp_path, study(6)).comparison
    fewer = study(6, ["none", "se"])
    finish(tmp_path, fewer, noisy)
    assert row(tmp_path, fewer).comparison.adjusted_p == whole.adjusted_p
    assert show_study(fewer, tmp_path).changes == (
        "row eca of digits resnet20 was removed with 6 finished runs; it still counts in Holm's "
        "correction",
    )


def test_a_row_of_one_run_is_spoken_of_as_such(tmp_path: Path) -> None:
    finish(tmp_path, study(1), noisy)
    fewer = study(1, ["none", "se"])
    finish(tmp_path, fewer, noisy)
    assert show_study(fewer, tmp_path).changes == (
        "row eca of digits resnet20 was removed with 1 finished run; it still counts in Holm's "
        "correction",
    )


def test_seeds_that_are_dropped_leave_nothing_to_be_told(tmp_path: Path) -> None:
    finish(tmp_path, study(6), noisy)
    fewer = study([1, 2, 3, 4, 5])
    finish(tmp_path, fewer, noisy)
    table = show_study(fewer, tmp_path)
    assert table.changes == ("seed 0 had been seen and was removed: no verdict",)
    assert row(tmp_path, fewer).comparison.verdict == "cannot tell"
    assert "[–]: seeds were removed after their results had been seen" in study_footnotes(table)


def test_a_changed_recipe_is_other_runs(tmp_path: Path) -> None:
    finish(tmp_path, study(3), noisy)
    other = study(3, recipe={"name": "digits", "epochs": 2, "batch_size": 25})
    assert str(study_status(other, tmp_path)) == (
        "9 waiting, 9 stale: recipe.batch_size was 50, is 25"
    )
    assert row(tmp_path, other).stale == ("3: recipe.batch_size was 50, is 25",)
    assert row(tmp_path, other).seeds == ()


def test_who_insists_on_stale_runs_gets_no_verdict(tmp_path: Path) -> None:
    finish(tmp_path, study(6), noisy)
    other = study(6, recipe={"name": "digits", "epochs": 2, "batch_size": 25})
    table = show_study(other, tmp_path, include_stale=True)
    (group,) = table.groups
    assert [len(row.seeds) for row in group.rows] == [6, 6, 6]
    assert {r.comparison.verdict for r in group.rows if r.comparison} == {"cannot tell"}
    assert (
        "[–]: runs that were made from different code, data or settings are mixed"
        in study_footnotes(table)
    )


def test_a_gate_that_is_edited_is_never_averaged_with_what_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    name = "my_gates_of_history"

    def write(source: str) -> None:
        (tmp_path / f"{name}.py").write_text(source)
        sys.modules.pop(name, None)

    def mine(seeds: int) -> Study:
        gate = {"gate": f"{name}.MyGate", "label": "mine"}
        return small_study(attention=["none", gate], seeds=seeds)

    write(GATE)
    finish(tmp_path / "runs", mine(3), noisy)
    write(GATE.replace("sigmoid", "tanh"))
    reason = f"the gate's source changed ({name}.MyGate)"
    assert str(study_status(mine(3), tmp_path / "runs")) == f"3 done, 3 waiting, 3 stale: {reason}"
    finish(tmp_path / "runs", mine(4), noisy)
    table = show_study(mine(4), tmp_path / "runs")
    plain, gated = table.groups[0].rows
    assert (plain.seeds, gated.seeds) == ((0, 1, 2, 3), (0, 1, 2, 3))
    assert gated.stale == (f"3: {reason}",)
    assert f"stale runs, which do not count, 3: {reason}" in table.changes


def test_an_image_more_is_other_data(tmp_path: Path) -> None:
    def paint(part: str, name: str, value: int) -> None:
        path = tmp_path / "images" / part / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (value, value, value)).save(path)

    for number in range(4):
        for name in ("a", "b"):
            paint("train", f"{name}/{number}.png", 20 * number)
            paint("test", f"{name}/{number}.png", 20 * number)
    data = {"name": "folder", "root": str(tmp_path / "images"), "size": 8, "label": "mine"}
    chosen = study(2, ["none"], data=data)
    finish(tmp_path / "runs", chosen, noisy)
    assert str(study_status(chosen, tmp_path / "runs")) == "2 done"
    paint("train", "a/9.png", 255)
    assert str(study_status(chosen, tmp_path / "runs")) == ("2 waiting, 2 stale: the data changed")
    (group,) = show_study(chosen, tmp_path / "runs").groups
    assert group.rows[0].seeds == ()


def test_measuring_otherwise_orphans_nothing(tmp_path: Path) -> None:
    finish(tmp_path, study(2), noisy)
    other = study(2, measure={"images": 7, "inference_images": 3})
    assert [e.run_id for e in present(Store(tmp_path), other).runs] == [
        e.run_id for e in present(Store(tmp_path), study(2)).runs
    ]
    assert row(tmp_path, other).seeds == (0, 1)


def test_lower_is_better_where_the_metric_says_so(tmp_path: Path) -> None:
    error = Metric(name="mae", label="mean |error|", better="lower", digits=3)

    def value(name: str, seed: int) -> float:
        return (0.2 if name == "se" else 0.5) + 0.001 * (seed % 3) * (1 if name == "se" else 2)

    chosen = study(6)
    finish(tmp_path, chosen, value)
    for file in tmp_path.glob("*/result.json"):
        found = json.loads(file.read_text())
        found |= {"metrics": [error.model_dump()], "values": {"mae": found["values"]["top1"]}}
        file.write_text(json.dumps(found))
        write_manifest(file.parent, found["run_id"])
    table = show_study(chosen, tmp_path)
    se = row(tmp_path, chosen)
    assert (se.comparison.verdict, se.comparison.difference.mean < 0) == ("better", True)
    shown = StudyColumns(table).terminal(table.groups[0])[0]
    heads, rows = shown.columns, shown.texts()
    assert heads[2] == "mean |error|"
    assert rows[1][4].startswith("-0.3")
    assert any("lower is better" in line for line in study_footnotes(table))


def test_seeds_that_an_effect_needs(tmp_path: Path) -> None:
    finish(tmp_path, study(6), noisy)
    needs = seeds_for_effect(show_study(study(6), tmp_path), 1.0)
    assert [need.row for need in needs] == ["se", "eca"]
    for need in needs:
        assert need.seen == 6
        assert need.fixed is not None
        assert need.anytime is not None
        assert need.fixed < need.anytime


def test_until_decided_adds_seeds_until_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def value(name: str, seed: int) -> float:
        numbers = np.random.default_rng([seed, len(name)])
        return 0.5 + 0.001 * numbers.normal() + (0.1 if name == "se" else 0.0)

    def finished(store: Store, chosen: Study, *_: Any) -> list[Any]:
        finish(store.out, chosen, value, until_decided=True)
        return []

    monkeypatch.setattr("attnlab.lab.study.run._finish", finished)
    chosen = study(2, ["none", "se"])
    run_until_decided(chosen, tmp_path, HereExecutor())
    table = show_study(chosen, tmp_path)
    (group,) = table.groups
    assert table.sequential
    # Five seeds are the least for which the interval is finite.
    assert group.rows[1].seeds == (0, 1, 2, 3, 4)
    assert group.rows[1].comparison is not None
    assert group.rows[1].comparison.verdict == "better"
    # The file still says two seeds; those that were added are not forgotten, nor dropped.
    assert "removed" not in " ".join(table.changes)
    run_until_decided(chosen, tmp_path, HereExecutor())
    assert len(read_plans(Store(tmp_path).study_directory("small")).plans) == 4


def test_until_decided_ends_at_the_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def finished(store: Store, chosen: Study, *_: Any) -> list[Any]:
        finish(store.out, chosen, lambda name, seed: 0.5, until_decided=True)  # noqa: ARG005
        return []

    monkeypatch.setattr("attnlab.lab.study.run._finish", finished)
    chosen = study(2, ["none", "se"])
    run_until_decided(chosen, tmp_path, HereExecutor(), most_seeds=4)
    assert row(tmp_path, chosen).seeds == (0, 1, 2, 3)
    assert row(tmp_path, chosen).comparison.verdict == "cannot tell"


@pytest.mark.parametrize(
    ("task", "data", "metric"),
    [("multilabel", "digit-pairs", "mAP %"), ("regression", "digit-angles", "mean |error|")],
)
def test_other_tasks_go_the_same_way(task: str, data: str, metric: str, tmp_path: Path) -> None:
    """From a file to a table, with stiffness, gates and fold of the trained networks."""
    chosen = small_study(
        task=task,
        data={"name": data, "train_subset": 60, "test_subset": 30, "size": 8},
        attention=["none", "asr:se"],
        seeds=2,
        recipe={"name": "digits", "epochs": 2, "batch_size": 20, "lr": 0.01},
        measure={"images": 8, "inference_images": 8},
    )
    outcomes = run_study(chosen, tmp_path, HereExecutor())
    assert [outcome.message for outcome in outcomes] == [""] * 4
    table = show_study(chosen, tmp_path)
    plain, gated = table.groups[0].rows
    assert table.metric.title == metric
    assert gated.tns is not None
    assert gated.fold_error is not None
    assert gated.fold_error < 1e-10
    assert gated.folded is not None
    assert gated.folded.mean == pytest.approx(gated.values[table.metric.name].mean, rel=1e-4)
    assert plain.folded is None
    assert metric in StudyColumns(table).terminal(table.groups[0])[0].columns


def test_stale_runs_of_another_yardstick_stay_out(tmp_path: Path) -> None:
    """The same rows, judged otherwise: not even `include_stale` puts both into one table."""
    made = {
        "data": {"name": "photos", "size": 24},
        "backbone": {"name": "fast_style", "options": {"width": 4, "blocks": 1, "norm": "batch"}},
        "attention": ["none"],
        "recipe": {"name": "style", "epochs": 1, "warmup_epochs": 0},
    }
    run_study(small_study(task="style-filters", **made), tmp_path, HereExecutor())
    weights = tmp_path / "vgg.pth"
    weights.write_bytes(b"never read: nothing is trained with it")
    task = {"name": "style", "options": {"weights": str(weights)}}
    write_plan(Store(tmp_path), small_study(task=task, **made))
    table = show_study(small_study(task=task, **made), tmp_path, include_stale=True)
    assert table.metric.name == "vgg_loss"
    assert table.groups[0].rows[0].values == {}
    assert "stale runs whose result is filter loss never stand in this table" in table.notes


def test_rows_of_another_recipe_than_the_plain_network_are_named(tmp_path: Path) -> None:
    """A network's own recipe is not said: its plain network has it too."""
    told = "were trained by different recipes, so the difference is of the recipe as well"
    slower = {"gate": "se", "label": "slower", "recipe": {"lr": 0.01}}
    named = {"gate": "se", "label": "named", "recipe": "resnet_cifar"}
    mixed = small_study(seeds=2, attention=["none", "se", slower, named])
    own = small_study(seeds=2, backbone={"name": "resnet20", "recipe": {"lr": 0.01}})
    notes = []
    for number, each in enumerate((mixed, own)):
        finish(tmp_path / str(number), each, noisy)
        table = show_study(each, tmp_path / str(number))
        notes.append([note for note in table.notes if told in note])
    assert notes == [[f"digits resnet20: slower, named and the plain network {told}"], []]
