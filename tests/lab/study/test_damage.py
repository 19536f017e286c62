"""One damaged file in a folder of runs: it is named, with what to do, and the rest is there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image
from tests.lab.study._small import HereExecutor, small_study

import attnlab
from attnlab._files import write_whole
from attnlab.cli import main
from attnlab.lab.study import run_study, show_study, study_status
from attnlab.lab.training import load_network
from attnlab.results import Measured, StoredRun
from attnlab.results.damage import DamagedFileError
from attnlab.results.manifest import write_manifest
from attnlab.results.run_reader import check_picture
from attnlab.results.study import RunEntry, read_study

STUDY = small_study(
    attention=["none", {"gate": "asr:se", "label": "asr:se", "where": "stiffest:1"}],
    seeds=2,
    measure={"images": 16, "inference_images": 16, "every_epoch": True, "corruptions": 8},
)
FILE = """
data = { name = "digits", train_subset = 100, test_subset = 50 }
backbone = "resnet20"
attention = ["none", { gate = "asr:se", label = "asr:se", where = "stiffest:1" }]
seeds = 2
recipe = { name = "digits", epochs = 2, batch_size = 50 }
measure = { images = 16, inference_images = 16, every_epoch = true, corruptions = 8 }
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    outcomes = run_study(STUDY, out, HereExecutor())
    assert [outcome.status for outcome in outcomes] == ["done"] * 4
    return out


@pytest.fixture
def runs(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "runs")
    return tmp_path / "runs"


def entry_of(runs: Path, number: int = 3) -> RunEntry:
    return read_study(runs / "studies" / "small").runs[number]


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def cut(file: Path) -> None:
    # Not after a whole line, which would be whole JSON.
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2].rstrip(b"}\n"))


def zeroed(file: Path) -> None:
    """As some file systems leave them after a power cut."""
    file.write_bytes(b"\0" * file.stat().st_size)


def bytes_(file: Path) -> None:
    file.write_bytes(b"\xff\xfe" + file.read_bytes())


def a_list(file: Path) -> None:
    file.write_text("[1, 2]")


def changed(change: Callable[[dict], object]) -> Callable[[Path], None]:
    def damage(file: Path) -> None:
        found = json.loads(file.read_text())
        change(found)
        file.write_text(json.dumps(found))

    return damage


def of_another_run(file: Path) -> None:
    out = file.parent.parent
    shutil.copy(out / entry_of(out, 0).folder / file.name, file)


# (file, what happened to it, why it is damaged, whether the run still counts)
DAMAGE = [
    ("result.json", emptied, "it is empty", False),
    ("result.json", cut, "it is not JSON (line ", False),
    ("result.json", zeroed, "it is empty", False),
    ("result.json", bytes_, "it is not UTF-8 text", False),
    ("result.json", a_list, "expected a JSON object but got [1, 2]", False),
    ("result.json", of_another_run, "it is of run {other}, expected {run_id}", False),
    (
        "result.json",
        changed(lambda found: found.update(format=3)),
        "it has format 3, expected 2: a newer attnlab wrote it",
        False,
    ),
    (
        "result.json",
        changed(lambda found: found.update(perplexity=1.0)),
        "Unknown setting 'perplexity' of runresult",
        False,
    ),
    ("result.json", changed(lambda found: found.pop("macs")), "Setting 'macs' of runresult", False),
    ("result.json", changed(lambda found: found["values"].clear()), "it lacks 'top1'", False),
    (
        "result.json",
        changed(lambda found: found["values"].update(top1=None)),
        "it has no value of top1",
        False,
    ),
    (
        "result.json",
        changed(lambda found: found["values"].update(top1="x")),
        "top1: expected a number but got 'x'",
        False,
    ),
    ("config.json", emptied, "it is empty", False),
    ("identity.json", cut, "it is not JSON (line ", False),
    ("data.json", emptied, "it is empty", True),
    ("environment.json", cut, "it is not JSON (line ", True),
    ("metrics.jsonl", emptied, "it is empty", True),
    ("metrics.jsonl", cut, "it is not JSON (line ", True),
    ("metrics.jsonl", a_list, "expected a JSON object but got [1, 2]", True),
    ("failure.json", emptied, "it is empty", True),
    ("failure.json", a_list, "expected a JSON object but got [1, 2]", True),
    (
        "failure.json",
        lambda file: file.write_text('{"error": 3}'),
        "error: Input should be a valid string",
        True,
    ),
    ("measured/stiffness.json", emptied, "it is empty", True),
    ("measured/stiffness.json", cut, "it is not JSON (line ", True),
    ("measured/stiffness.json", changed(lambda found: found["found"].pop("nsi")), "nsi: ", True),
    ("measured/fold.json", changed(lambda f: f["found"].update(error="x")), "error: ", True),
    ("measured/stripe.json", changed(lambda f: f.update(version=9)), "Unknown setting ", True),
    ("measured/stripe.json", changed(lambda f: f["found"].pop("sites")), "sites: ", True),
    ("measured/classes.json", changed(lambda f: f["found"].pop("classes")), "classes: ", True),
    (
        "measured/classes.json",
        changed(lambda found: found["found"]["confusion"].pop()),
        "expected a number for every pair of classes",
        True,
    ),
    ("measured/corruptions.json", changed(lambda f: f["found"].pop("mean")), "mean: ", True),
    (
        "measured/corruptions.json",
        changed(lambda found: found["found"]["rows"][0].pop("top1")),
        "rows.0.top1: ",
        True,
    ),
    (
        "measured/classes.json",
        changed(lambda found: found["found"].update(format="attnlab classes 9")),
        "it has format 'attnlab classes 9', expected 'attnlab classes 1'",
        True,
    ),
    ("measured/unknown.json", a_list, "expected a JSON object but got [1, 2]", True),
    ("model.safetensors", cut, "", True),
    ("model.safetensors", emptied, "", True),
    ("placement.json", emptied, "it is empty", True),
    ("placement.json", cut, "it is not JSON (line ", True),
    ("placement.json", a_list, "expected a JSON object but got [1, 2]", True),
    ("placement.json", changed(lambda f: f.pop("scores")), "Setting 'scores' of placementr", True),
    (
        "placement.json",
        changed(lambda found: found.update(where="blocks:1.2")),
        "it does not say what result.json says",
        True,
    ),
]


@pytest.mark.parametrize(
    ("name", "damage", "reason", "counts"),
    DAMAGE,
    ids=[f"{name}-{number}" for number, (name, *_) in enumerate(DAMAGE)],
)
def test_a_damaged_file_of_a_run(
    runs: Path, name: str, damage: Callable[[Path], None], reason: str, counts: bool
) -> None:
    entry = entry_of(runs)
    file = runs / entry.folder / name
    if name == "failure.json":
        file.write_text('{"error": "x", "when": 0}')
    damage(file)
    reason = reason.format(run_id=entry.run_id, other=entry_of(runs, 0).run_id)
    expected = f"{file} is damaged: {reason}"

    status = study_status(STUDY, runs)
    assert [run.state for run in status.runs] == ["done"] * 3 + ["damaged"]
    assert status.runs[3].detail.startswith(expected)
    assert str(status) == "3 done, 1 damaged"

    table = show_study(STUDY, runs)
    assert [len(row.seeds) for row in table.groups[0].rows] == [2, 2 if counts else 1]
    told = [note for note in table.notes if note.startswith(f"{entry}: {expected}")]
    assert len(told) == 1
    assert (
        told[0]
        .rstrip(".")
        .endswith(
            (
                "or starts anew",
                "trains it anew",
                "the result counts",
                "measure it again",
                "says what happened",
                "are trained anew",
                "says the same",
            )
        )
    )

    page = attnlab.report(runs, runs.parent / "page.html").read_text()
    assert file.name in page
    assert "is damaged" in page


def test_another_runs_result_with_its_identity(runs: Path) -> None:
    """The files agree with each other, but not with the run that the folder is planned for."""
    other, own = entry_of(runs, 0), entry_of(runs, 3)
    for name in ("result.json", "identity.json"):
        shutil.copy(runs / other.folder / name, runs / own.folder / name)
    write_manifest(runs / own.folder, other.run_id)
    status = study_status(STUDY, runs).runs[3]
    assert status.state == "damaged"
    assert f"it is of run {other.run_id}, expected {own.run_id}. " in status.detail
    assert [len(row.seeds) for row in show_study(STUDY, runs).groups[0].rows] == [2, 1]


def test_running_tells_of_damage_and_does_the_rest(runs: Path) -> None:
    """A result is never replaced without a word; a measurement is made again."""
    lost, damaged, unmeasured, gateless = (runs / entry_of(runs, n).folder for n in range(4))
    (lost / "result.json").unlink()
    emptied(damaged / "result.json")
    cut(unmeasured / "measured" / "stiffness.json")
    cut(gateless / "measured" / "stripe.json")
    outcomes = run_study(STUDY, runs, HereExecutor())
    assert [outcome.status for outcome in outcomes] == ["done", "failed", "done", "done"]
    assert outcomes[1].message == (
        f"{damaged / 'result.json'} is damaged: it is empty. Remove it and run the study again: "
        f"the run goes on from its last checkpoint, or starts anew."
    )
    assert (damaged / "result.json").stat().st_size == 0
    (damaged / "result.json").unlink()
    assert [outcome.status for outcome in run_study(STUDY, runs, HereExecutor())] == ["done"]
    assert str(study_status(STUDY, runs)) == "4 done"


def test_blocks_are_chosen_again_for_a_run_that_is_not_finished(runs: Path) -> None:
    folder = runs / entry_of(runs).folder
    before = StoredRun(folder).result
    (folder / "result.json").unlink()
    cut(folder / "placement.json")
    told = study_status(STUDY, runs).runs[3]
    assert told.state == "damaged"
    assert told.detail.startswith(f"{folder / 'placement.json'} is damaged: ")
    assert told.detail.endswith(". `attnlab study run` chooses the blocks again.")
    assert "is damaged" in attnlab.report(runs, runs.parent / "page.html").read_text()
    assert [outcome.status for outcome in run_study(STUDY, runs, HereExecutor())] == ["done"]
    after = StoredRun(folder).result
    assert (after.placement, after.values) == (before.placement, before.values)
    assert str(study_status(STUDY, runs)) == "4 done"


def test_the_network_of_a_finished_run_needs_no_placement(runs: Path) -> None:
    """What the advice says: remove it, the result says the same."""
    folder = runs / entry_of(runs).folder
    before = load_network(folder).state_dict()
    emptied(folder / "placement.json")
    assert load_network(folder).state_dict().keys() == before.keys()
    (folder / "placement.json").unlink()
    assert load_network(folder).state_dict().keys() == before.keys()
    assert str(study_status(STUDY, runs)) == "4 done"


def test_a_strange_file_in_a_folder_of_a_study_is_nobodys(runs: Path) -> None:
    (runs / "studies" / "small" / "placement.json").write_bytes(b"\xff")
    (runs / entry_of(runs, 0).folder / "notes.json").write_text("[")
    assert str(study_status(STUDY, runs)) == "4 done"
    assert "is damaged" not in attnlab.report(runs, runs.parent / "page.html").read_text()


@pytest.mark.parametrize("damage", [emptied, a_list])
def test_damaged_times_are_told_and_taken_again(runs: Path, damage: Callable[[Path], None]) -> None:
    file = runs / "studies" / "small" / "speed.json"
    damage(file)
    group = show_study(STUDY, runs).groups[0]
    assert group.timed is None
    assert "speed.json is damaged: " in group.why_not_timed
    command = f"attnlab study measure small --only speed --out {runs.resolve()}"
    assert group.why_not_timed.endswith(f"`{command}` does it here")
    assert attnlab.report(runs, runs.parent / "page.html").is_file()
    assert run_study(STUDY, runs, HereExecutor()) == []


def measured_by_hand(runs: Path, name: str, found: dict) -> list[Path]:
    """Of the runs with gates, as if their task had it."""
    folders = [runs / entry_of(runs, number).folder for number in (1, 3)]
    for folder in folders:
        StoredRun(folder).write_measured(Measured(measurement=name, found=found))
    return folders


@pytest.mark.parametrize(
    ("name", "damage", "reason"),
    [
        ("pictures/0-output.png", cut, "it is not a whole picture"),
        ("pictures/0-input.png", Path.unlink, "it is not there"),
        ("measured/pictures.json", changed(lambda f: f["found"].pop("pictures")), "pictures: "),
        (
            "measured/pictures.json",
            changed(lambda found: found["found"].update(folded_change=0.1)),
            "expected folded pictures of all images, or of none",
        ),
    ],
)
def test_damaged_pictures(
    runs: Path, name: str, damage: Callable[[Path], None], reason: str
) -> None:
    names = {"input": "pictures/0-input.png", "output": "pictures/0-output.png"}
    found = {"format": "attnlab pictures 1", "pictures": [names], "folded_change": None}
    for number in (1, 3):
        folder = runs / entry_of(runs, number).folder
        (folder / "pictures").mkdir()
        for each in names.values():
            Image.new("RGB", (8, 8), (200, 100, 0)).save(folder / each)
    folders = measured_by_hand(runs, "pictures", found)
    page = attnlab.report(runs, runs.parent / "page.html").read_text()
    assert "asr:se, image 1" in page
    assert "is damaged" not in page
    damage(folders[1] / name)
    assert f"{folders[1] / name} is damaged: {reason}" in study_status(STUDY, runs).runs[3].detail
    page = attnlab.report(runs, runs.parent / "page.html").read_text()
    assert "asr:se, image 1" in page  # of the other seed
    assert f"{Path(name).name} is damaged" in page


def test_a_picture_that_another_package_cannot_read_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with Ultralytics imported, which looks for one more package then."""

    def looking(*_: object) -> None:
        raise ModuleNotFoundError("No module named 'pi_heif'")

    monkeypatch.setattr(Image, "open", looking)
    file = tmp_path / "0.png"
    file.write_bytes(b"x")
    with pytest.raises(DamagedFileError, match="it is not a whole picture"):
        check_picture(file, "Remove it.")


DETAILS = {
    "format": "attnlab details 1",
    "breakdowns": [{"title": "by kind", "values": {"cat": 0.5}}],
}


def test_damaged_details(runs: Path) -> None:
    folders = measured_by_hand(runs, "details", DETAILS)
    assert "by kind" in attnlab.report(runs, runs.parent / "page.html").read_text()
    changed(lambda found: found["found"]["breakdowns"][0].pop("title"))(
        folders[1] / "measured" / "details.json"
    )
    page = attnlab.report(runs, runs.parent / "page.html").read_text()
    assert "by kind" in page
    assert "details.json is damaged" in page


def test_details_of_another_task_are_left_out(runs: Path) -> None:
    folders = measured_by_hand(runs, "details", DETAILS)
    changed(lambda found: found["found"]["breakdowns"].clear())(
        folders[1] / "measured" / "details.json"
    )
    assert "by kind" in attnlab.report(runs, runs.parent / "page.html").read_text()


@pytest.mark.parametrize("damage", [emptied, cut, a_list, changed(lambda f: f.update(format=9))])
@pytest.mark.parametrize("name", ["study.json", "table.json"])
def test_a_damaged_file_of_the_study(runs: Path, name: str, damage: Callable[[Path], None]) -> None:
    before = show_study(STUDY, runs)
    file = runs / "studies" / "small" / name
    damage(file)
    assert str(study_status(STUDY, runs)) == "4 done"
    assert show_study(STUDY, runs) == before
    if damage in (emptied, cut, a_list) or name == "study.json":
        page = attnlab.report(runs, runs.parent / "page.html").read_text()
        assert "asr:se" in page
        assert ("study.json is damaged" in page) == (name == "study.json")
    assert run_study(STUDY, runs, HereExecutor()) == []
    assert not read_study(runs / "studies" / "small").damage
    page = attnlab.report(runs, runs.parent / "page.html").read_text()
    assert "is damaged" not in page


@pytest.mark.parametrize("damage", [emptied, cut, a_list])
def test_without_the_plans_there_is_no_verdict(runs: Path, damage: Callable[[Path], None]) -> None:
    """They say whether seeds were added after a look, and running on does not hide the loss."""
    file = runs / "studies" / "small" / "plans.jsonl"
    damage(file)
    for _ in range(2):
        table = show_study(STUDY, runs)
        assert table.groups[0].rows[1].comparison is not None
        assert table.groups[0].rows[1].comparison.verdict == "cannot tell"
        assert any(note.startswith(f"{file} is damaged") for note in table.notes)
        assert attnlab.report(runs, runs.parent / "page.html").is_file()
        run_study(STUDY, runs, HereExecutor())


def test_a_damaged_study_without_plans_says_what_to_do(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = runs / "studies" / "small"
    (directory / "plans.jsonl").unlink()
    emptied(directory / "study.json")
    with pytest.raises(SystemExit) as ended:
        main(["report", str(runs), "-o", str(runs.parent / "page.html")])
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        f"attnlab: {directory / 'study.json'} is damaged: it is empty. `attnlab study run` with "
        f"the study's file or name writes it anew.\n"
    )
    comparison = show_study(STUDY, runs).groups[0].rows[1].comparison
    assert comparison is not None
    assert comparison.verdict == "cannot tell"


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"host": 1}', "\0\0"])
def test_a_damaged_owner_is_an_unknown_process(runs: Path, content: str) -> None:
    from attnlab.lab.study.lock import claim, owner

    directory = runs / entry_of(runs).folder
    with claim(directory):
        (directory / "owner.json").write_text(content)
        assert owner(directory) == "an unknown process"
        assert str(study_status(STUDY, runs)) == "4 done"


def test_the_commands_tell_it_too(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attnlab.lab.study.LocalExecutor", lambda *_, **__: HereExecutor())
    file = runs.parent / "small.toml"
    file.write_text(FILE)
    damaged = runs / entry_of(runs).folder / "result.json"
    cut(damaged)
    for command in ("status", "show", "plan"):
        main(["study", command, str(file), "--out", str(runs)])
        printed = "".join(capsys.readouterr().out.split())
        assert "isdamaged:itisnotJSON" in printed or command == "plan"
    with pytest.raises(SystemExit) as ended:
        main(["study", "run", str(file), "--out", str(runs)])
    assert ended.value.code == 1
    assert "1 run failed" in capsys.readouterr().out


def read_only(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Also for a superuser, whom permissions do not stop."""
    import os

    def refuse(path: Path, content: bytes | str) -> Path:
        if folder in path.parents:
            raise PermissionError(13, "Permission denied", str(path))
        return write_whole(path, content)

    for module in ("results.digest", "results.run_reader", "results.study"):
        monkeypatch.setattr(f"attnlab.{module}.write_whole", refuse)
    access = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: folder not in Path(path).parents and access(path, mode)
    )


def test_a_folder_that_may_only_be_read(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {file: file.read_bytes() for file in runs.rglob("*") if file.is_file()}
    read_only(monkeypatch, runs)
    table = runs / "studies" / "small" / "table.json"
    table.unlink()
    assert str(study_status(STUDY, runs)) == "4 done"
    assert len(show_study(STUDY, runs).finished) == 4
    main(["report", str(runs), "-o", str(runs.parent / "page.html")])
    assert "wrote" in capsys.readouterr().out
    after = {file: file.read_bytes() for file in runs.rglob("*") if file.is_file()}
    assert {**after, table: before[table]} == before


def test_a_lock_that_may_only_be_read_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from attnlab.lab.study import lock

    with lock.claim(tmp_path), monkeypatch.context() as patched:
        patched.setattr(lock.FileLock, "acquire", _denied)
        assert lock.is_claimed(tmp_path)
    monkeypatch.setattr(lock.FileLock, "acquire", _denied)
    assert not lock.is_claimed(tmp_path)


def _denied(*_: object, **__: object) -> None:
    raise PermissionError(13, "Permission denied")


def test_the_study_of_the_tests_is_the_files(tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    file.write_text(FILE)
    from attnlab.lab.study import load_study

    assert load_study(file).model_dump() == STUDY.model_dump()
