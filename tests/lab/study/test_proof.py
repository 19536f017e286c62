"""Files that prove themselves: what was changed after it was written is named, and never shown."""

from __future__ import annotations

import json
import os
import random
import shutil
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.lab.study._small import HereExecutor, small_study

from attnlab._files import write_whole
from attnlab.lab.study import run_study, show_study, study_status
from attnlab.lab.training import load_network
from attnlab.results import StoredRun
from attnlab.results.checkpoints import CheckpointWarning, load_checkpoint
from attnlab.results.damage import DamagedFileError, read_object
from attnlab.results.digest import FILE as DIGEST
from attnlab.results.digest import read_digest
from attnlab.results.manifest import FILE, read_manifest, write_manifest
from attnlab.results.metric import Metric
from attnlab.results.speed import read_speed
from attnlab.results.study import read_plans, read_study

STUDY = small_study(
    seeds=2,
    recipe={"name": "digits", "epochs": 2, "batch_size": 50},
    measure={"images": 8, "inference_images": 8},
)
FREE = ("owner.json", "log.txt", ".lock", ".plans.lock", ".speed.lock", ".manifest.lock")
"""Of no result: who worked on a run last, what it printed, and locks."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    outcomes = run_study(STUDY, out, HereExecutor())
    assert [outcome.message for outcome in outcomes] == [""] * 4
    return out


@pytest.fixture
def runs(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "runs")
    return tmp_path / "runs"


def is_noticed(file: Path, out: Path) -> bool:
    """Whether a file that was changed is named by who reads it."""
    if file.parent.parent.name == "studies":
        return {
            "plans.jsonl": lambda: bool(read_plans(file.parent).damage),
            "study.json": lambda: bool(read_study(file.parent).damage),
            "speed.json": lambda: "is damaged" in getattr(read_speed(file.parent), "why_not", ""),
            # Made of the runs whenever something is shown; no command reads it.
            "table.json": lambda: True,
        }[file.name]()
    if file.parent.name == "checkpoints":
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            load_checkpoint(file.parent)
        newest = sorted(file.parent.iterdir())[-1] == file
        return not newest or any(each.category is CheckpointWarning for each in told)
    if file.name == DIGEST:
        return read_digest(file.parent) is None  # it is not believed, and made anew of the others
    stored = StoredRun(out / file.relative_to(out).parts[0])
    if file.name == "model.safetensors":
        try:
            stored.check_weights()
        except DamagedFileError:
            return True
        return False
    return any(str(file) in str(problem) for problem in stored.damage)


def silent_flips(out: Path, number: int, seed: int = 0) -> Counter[str]:
    """Flip `number` random bits, one at a time, over all files; the names of those that nobody
    noticed. Every file is as likely as any other, so that small ones are hit as well."""
    draw = random.Random(seed)
    files = sorted(file for file in out.rglob("*") if file.is_file() and file.name not in FREE)
    silent: Counter[str] = Counter()
    for _ in range(number):
        file = draw.choice(files)
        before = file.read_bytes()
        changed = bytearray(before)
        changed[draw.randrange(len(before))] ^= 1 << draw.randrange(8)
        file.write_bytes(changed)
        if not is_noticed(file, out):
            silent[file.name] += 1
        file.write_bytes(before)
    return silent


def test_no_flipped_bit_is_silent(runs: Path) -> None:
    assert silent_flips(runs, 300) == Counter()
    assert str(study_status(STUDY, runs)) == "4 done"


def run_of(runs: Path, number: int) -> Path:
    return runs / read_study(runs / "studies" / "small").runs[number].folder


def test_weights_of_another_seed_are_refused(runs: Path) -> None:
    mine, other = run_of(runs, 0), run_of(runs, 2)
    shutil.copy(other / "model.safetensors", mine / "model.safetensors")
    with pytest.raises(DamagedFileError, match="it is not what was written"):
        load_network(mine)
    (mine / "measured" / "stiffness.json").unlink()
    (outcome,) = run_study(STUDY, runs, HereExecutor())
    assert outcome.status == "failed"
    assert "model.safetensors is damaged: it is not what was written" in outcome.message


def forged(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """A result that is changed by somebody who writes the manifest anew as well."""
    found = json.loads((folder / "result.json").read_text())
    change(found)
    (folder / "result.json").write_text(json.dumps(found))
    write_manifest(folder, found["run_id"])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda f: f["values"].update(top1=1.47), "top1 is 1.47, expected at most 1"),
        (lambda f: f["values"].update(top1=-0.2), "top1 is -0.2, expected at least 0"),
        (lambda f: f["values"].update(top1=True), "expected a number but got True"),
        (lambda f: f["values"].update(top1="0.5"), "top1: expected a number but got '0.5'"),
        (lambda f: f["values"].update(loss=-1.0), "loss is -1, expected at least 0"),
        (lambda f: f.update(best_value=3.0), "top1 is 3, expected at most 1"),
        (lambda f: f["values"].update(top1=0.987), "top1 is 0.987, but metrics.jsonl says "),
        (lambda f: f["values"].update(top1=float("nan")), "expected a finite number"),
    ],
)
def test_a_result_that_cannot_be_is_damage(
    runs: Path, change: Callable[[dict[str, Any]], object], reason: str
) -> None:
    forged(run_of(runs, 3), change)
    status = study_status(STUDY, runs).runs[3]
    assert status.state == "damaged"
    assert reason in status.detail
    assert [len(row.seeds) for row in show_study(STUDY, runs).groups[0].rows] == [2, 1]


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "1" * 5000])
@pytest.mark.parametrize("name", ["result.json", "metrics.jsonl", "measured/stiffness.json", FILE])
def test_deep_json_is_damage(runs: Path, name: str, text: str) -> None:
    (run_of(runs, 3) / name).write_text(text)
    status = study_status(STUDY, runs).runs[3]
    assert status.state == "damaged"
    assert f"{name} is damaged" in status.detail


def test_huge_json_is_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnlab.results.damage._MOST_BYTES", 10)
    (tmp_path / "a.json").write_text('{"name": 1}')
    with pytest.raises(DamagedFileError, match="it has 11 bytes, expected at most 10"):
        read_object(tmp_path / "a.json", "")


@pytest.mark.parametrize("name", ["config.json", "data.json", "metrics.jsonl", "model.safetensors"])
def test_a_file_that_is_missing_is_damage(runs: Path, name: str) -> None:
    (run_of(runs, 3) / name).unlink()
    status = study_status(STUDY, runs).runs[3]
    assert status.state == "damaged"
    assert f"{name} is damaged: it is not there" in status.detail


def test_a_file_that_the_manifest_does_not_list_is_damage(runs: Path) -> None:
    folder = run_of(runs, 3)
    content = (folder / "config.json").read_bytes()
    (folder / "config.json").unlink()
    write_manifest(folder, StoredRun(folder).result.run_id)
    (folder / "config.json").write_bytes(content)
    status = study_status(STUDY, runs).runs[3]
    assert status.state == "damaged"
    assert f"config.json is damaged: {FILE} does not list it" in status.detail


def test_a_run_without_its_manifest_is_not_finished(runs: Path) -> None:
    """As a kill between the last two files leaves it; the weights are in the last checkpoint."""
    folder = run_of(runs, 3)
    before = StoredRun(folder).result
    (folder / FILE).unlink()
    assert study_status(STUDY, runs).runs[3].state == "stopped"
    assert [outcome.status for outcome in run_study(STUDY, runs, HereExecutor())] == ["done"]
    assert StoredRun(folder).result.values == before.values
    assert str(study_status(STUDY, runs)) == "4 done"


def test_every_file_of_a_finished_run_is_listed(runs: Path) -> None:
    folder = run_of(runs, 3)
    manifest = read_manifest(folder)
    assert manifest is not None
    files = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}
    proven = {name for name in files if not name.startswith("checkpoints/")}
    assert proven - set(FREE) - {FILE, DIGEST} == set(manifest.files)


def test_partial_files_of_measurements_are_cleaned(runs: Path) -> None:
    folder = run_of(runs, 3) / "measured"
    of_study = runs / "studies" / "small"
    left, writing = (folder / f".stiffness.json.{pid}.partial" for pid in (999_998, 999_999))
    table = of_study / ".table.json.999999.partial"
    for file in (left, writing, table):
        file.write_text("{")
    for file in (left, table):
        os.utime(file, (1e9, 1e9))
    (folder / "stiffness.json").unlink()
    run_study(STUDY, runs, HereExecutor())
    assert (left.exists(), writing.exists(), table.exists()) == (False, True, False)


def test_status_does_not_read_the_weights(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over thousands of runs that would take minutes."""

    def refuse(path: Path) -> str:
        raise AssertionError(path)

    monkeypatch.setattr("attnlab.results.run_reader.digest", refuse)
    assert str(study_status(STUDY, runs)) == "4 done"
    assert len(show_study(STUDY, runs).finished) == 4


def test_a_metric_says_what_it_can_be() -> None:
    metric = Metric(name="r2", label="R²", most=1)
    metric.check_value(-5)
    with pytest.raises(ValueError, match=r"r2 is 1\.5, expected at most 1"):
        metric.check_value(1.5)


def test_a_measurement_made_again_is_proven_again(runs: Path) -> None:
    folder = run_of(runs, 3)
    before = read_manifest(folder)
    write_whole(folder / "measured" / "stiffness.json", "{}")
    assert study_status(STUDY, runs).runs[3].state == "damaged"
    assert [outcome.status for outcome in run_study(STUDY, runs, HereExecutor())] == ["done"]
    after = read_manifest(folder)
    assert before is not None
    assert after is not None
    assert before.finished == after.finished
    assert str(study_status(STUDY, runs)) == "4 done"
