"""`attnlab study`, from a new file to its table."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.lab.study._results import finish, noisy
from tests.lab.study._small import HereExecutor

from attnlab.cli import main
from attnlab.lab.study import load_study, planned_runs

STUDY = """
title = "Small"
data = { name = "digits", train_subset = 100, test_subset = 50 }
backbone = "resnet20"
attention = ["none", "se"]
seeds = 2
recipe = { name = "digits", epochs = 2, batch_size = 50 }
measure = { images = 0, inference_images = 0 }

[paper]
source = "Nobody, Table 9"
[paper.top1."digits resnet20"]
plain = "10.00 ± 1.00"
se = "12.50 ± 2.00"
"""


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnlab.lab.study.LocalExecutor", lambda *_, **__: HereExecutor())


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    main(["study", *arguments])
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["study", *arguments])
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_a_new_file_is_a_study_and_is_not_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.toml"
    assert shown(capsys, "new", str(path)) == f"wrote {path}\nnext: attnlab study plan {path}\n"
    assert len(planned_runs(load_study(path))) == 4 * 3
    assert refused(capsys, "new", str(path)) == (
        f"attnlab: {path} exists already. Give another name, or remove it first.\n"
    )


@pytest.mark.usefixtures("here")
def test_plan_run_status_and_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "mine.toml", tmp_path / "runs"
    path.write_text(STUDY)
    rest = (str(path), "--out", str(out))
    planned = shown(capsys, "plan", *rest)
    assert "4 runs, 0 done, 4 left\nabout " in planned
    assert "measured step" in planned
    assert not out.exists()

    ran = shown(capsys, "run", *rest)
    assert "Small: 4 runs, 4 waiting" in ran
    assert "  4  digits resnet20 se seed 1: top-1 " in ran
    assert "12.50 ± 2.00" in ran
    assert f"attnlab.lab.study.run_study(study, {str(out)!r})" in ran
    assert "Small: 4 runs, 4 done" in shown(capsys, "run", *rest)

    status = shown(capsys, "status", *rest)
    assert "\n4 done\n4 runs: 4 done\n" in status
    assert len(re.findall(r" seed \d +done +2/2 +\d\.\d{3} +\d+\.\d\d ", status)) == 4
    assert "\n4 done\n" in shown(capsys, "status", *rest, "--watch")
    planned = shown(capsys, "plan", *rest, "--effect", "2.5")
    assert "4 runs, 4 done, 0 left\n" in planned
    assert "digits resnet20 se: to show a difference of 2.5 pt at the spread seen so" in planned

    markdown = tmp_path / "table.md"
    assert "+2.50" in shown(capsys, "show", *rest, "--markdown", str(markdown))
    assert "paper: Nobody, Table 9." in markdown.read_text()
    stored = json.loads((out / "studies" / "mine" / "table.json").read_text())
    rows = stored["groups"][0]["rows"]
    assert [row["paper"]["top1"]["mean"] for row in rows] == [10.0, 12.5]
    assert rows[1]["comparison"]["difference"]["seeds"] == [0, 1]


@pytest.mark.usefixtures("here")
def test_failures_are_listed_and_end_with_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "mine.toml", tmp_path / "runs"
    path.write_text(STUDY.partition("[paper]")[0].replace('["none", "se"]', '"se"'))
    path.write_text(path.read_text() + 'where = "blocks:99"\n')
    with pytest.raises(SystemExit) as ended:
        main(["study", "run", str(path), "--out", str(out)])
    assert ended.value.code == 1
    printed = capsys.readouterr().out
    why = "where='blocks:99': 99 does not exist in this network"
    assert f"digits resnet20 se @ blocks:99 seed 0: FAILED: {why}" in printed
    assert "2 runs failed; log.txt and failure.json of each say why:" in printed
    assert "where='blocks:99'" in shown(capsys, "status", str(path), "--out", str(out))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('"sse"', "Unknown gate 'sse'. Did you mean 'scse' or 'se' or 'sge'?"),
        ('"asr:see"', "Unknown gate 'see'. Did you mean 'se'"),
        (
            '{ gate = "se", options = { redction = 4 } }',
            "Gate 'se' has no option 'redction'. Did you mean 'reduction'?",
        ),
        ('{ gate = "se", options = { reduction = "4" } }', "reduction"),
    ],
)
def test_what_does_not_exist_is_refused_before_the_first_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], row: str, message: str
) -> None:
    """Though it is in the last row, and the plain one would be trained first."""
    path, out = tmp_path / "mine.toml", tmp_path / "runs"
    path.write_text(STUDY.partition("[paper]")[0].replace('"se"]', f"{row}]"))
    assert message in refused(capsys, "run", str(path), "--out", str(out))
    assert not out.exists()
    path.write_text(STUDY.partition("[paper]")[0].replace('"resnet20"', '["resnet20", "resnet2x"]'))
    assert "Unknown network 'resnet2x'." in refused(capsys, "run", str(path), "--out", str(out))
    assert not out.exists()


def test_messages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(STUDY)
    assert refused(capsys, "run", str(path), "--on", "ray", "--slots", "2") == (
        "attnlab: --slots is for --on local, but this is --on ray.\n"
    )
    assert refused(capsys, "plan", str(path), "--small") == (
        "attnlab: The study 'mine' has no [small] table, so no small form.\n"
    )
    assert refused(capsys, "run", str(path), "--slots", "0") == (
        "attnlab: Expected slots to be at least 1 but got 0.\n"
    )


def test_finished_runs_by_the_file_or_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`measure` and `submit` find a study as `run` and `show` do."""
    monkeypatch.chdir(tmp_path)
    Path("small.toml").write_text(
        STUDY.replace('title = "Small"', 'name = "mine"') + "[small]\nseeds = 3\n"
    )
    finish(Path("runs"), load_study("small.toml"), noisy)
    finish(Path("runs"), load_study("small.toml").smaller(), noisy)
    for small, name in (((), "mine"), (("--small",), "mine-small")):
        ending = shown(capsys, "measure", "small.toml", *small, "--only", "speed")
        assert f"the table of {name} is up to date\n" in ending
        assert f"attnlab.lab.study.measure_study('{name}', 'runs', only=('speed',))" in ending
    with pytest.raises(SystemExit) as ended:
        main(["study", "submit", "small.toml", "--table", "table.json", "--add"])
    assert ended.value.code == 1
    by_file = capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["study", "submit", "mine", "--table", "table.json", "--add"])
    assert capsys.readouterr().out == by_file
    assert refused(capsys, "measure", "other.toml") == (
        "attnlab: There is no file 'other.toml'. Expected the TOML file of a study.\n"
    )


def test_as_it_was_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the file or the name; without its data, and with a line that says so."""
    monkeypatch.chdir(tmp_path)
    Path("small.toml").write_text(STUDY.replace('title = "Small"', 'name = "mine"'))
    finish(Path("runs"), load_study("small.toml"), noisy)

    def unread(*_: object) -> None:
        raise AssertionError("it must not be planned")

    monkeypatch.setattr("attnlab.lab.study.plan.present", unread)
    status = shown(capsys, "status", "small.toml", "--as-planned")
    assert status.startswith("mine as it was planned last in runs: whether its file, its data")
    assert "4 done" in status
    table = shown(capsys, "show", "mine", "--as-planned", "--markdown", "table.md")
    assert "| plain " in Path("table.md").read_text()
    assert "mine as it was planned last in runs" in table
    assert refused(capsys, "status", "mine", "--as-planned", "--watch") == (
        "attnlab: --watch follows a study that runs, and --as-planned looks at it once.\n"
    )
    assert refused(capsys, "show", "mine", "--as-planned", "--include-stale") == (
        "attnlab: --include-stale asks which runs are stale, and --as-planned does not look at "
        "it.\n"
    )
    assert "There is no" in refused(capsys, "status", "other", "--as-planned")
    code = (
        "import sys; from attnlab.cli import main\n"
        "main(['study', 'status', 'mine', '--as-planned'])\n"
        "main(['study', 'show', 'mine', '--as-planned'])\n"
        "sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
