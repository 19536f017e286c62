"""What a page advises follows from its verdict; every command that it prints runs as printed."""

from __future__ import annotations

import html
import json
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.lab.pages.simulated import REGRESSION, TOP1, Simulated, prove, simulate
from tests.lab.study._small import HereExecutor

import attnlab
from attnlab.cli import main
from attnlab.instruments.place.section import placement_answer
from attnlab.lab.pages.doubts import deployable, doubts
from attnlab.results import Metric
from attnlab.results.record import read_record
from attnlab.results.study import StudyInvocation
from attnlab.results.table import Equivalence

GATE = """
from attnlab.gates import BranchGate

class Mean(BranchGate):
    def __init__(self, channels):
        super().__init__(channels)

    def forward(self, x):
        return x.mean((2, 3), keepdim=True).sigmoid()

    def start_constant(self):
        return 0.5
"""
STUDY = """
title = "Own"
data = { name = "digits", train_subset = 60, test_subset = 20 }
backbone = "resnet20"
attention = ["none", "asr:se", "own_gates.Mean"]
seeds = 2
recipe = { name = "digits", epochs = 2, batch_size = 30 }
measure = { images = 8, inference_images = 0 }
"""


def page_of(out: Path) -> str:
    return html.unescape(attnlab.report(out, out / "page.html").read_text(encoding="utf-8"))


def commands_on(page: str) -> list[str]:
    """Every command of a page, in running text and in blocks of code."""
    code = re.findall(r"<code[^>]*>(.*?)</code>", page, re.S)
    blocks = re.findall(r"<pre[^>]*>(.*?)</pre>", page, re.S)
    lines = [line.strip() for text in (*code, *blocks) for line in text.splitlines()]
    return list(dict.fromkeys(line for line in lines if line.startswith("attnlab ")))


def with_facts(out: Path, **facts: float) -> None:
    for file in out.glob("*/data.json"):
        file.write_text(json.dumps({**json.loads(file.read_text()), **facts}))
        prove(file.parent)


def texts(out: Path, name: str) -> list[str]:
    return [chip.text for chip in doubts(read_record(out, name))]


def test_only_what_was_shown_to_be_better_is_deployed(tmp_path: Path) -> None:
    made = simulate(tmp_path / "good", data=("cifar10",), gains={"asr:se": 0.5}, epochs=4)
    first = next(run for run in made.runs if run.cell.row == "asr:se")
    page = page_of(tmp_path / "good")
    command = f"attnlab fold runs/{first.folder} -o plain.safetensors"
    assert f"Deploy asr:se folded: <code>{command}</code>" in page
    for name, gain in (("none", 0.0), ("worse", -0.5)):
        simulate(tmp_path / name, data=("cifar10",), gains={"asr:se": gain}, epochs=4)
        page = page_of(tmp_path / name)
        assert "Deploy asr:se" not in page
        assert "asr:se folds, but was not shown to be better" in page
        assert "attnlab fold" not in page


def test_as_good_as_the_plain_network_is_a_reason_for_that_one(tmp_path: Path) -> None:
    made = simulate(tmp_path, data=("cifar10",), gains={"se": 0.0, "asr:se": 0.0}, epochs=4)
    record = read_record(tmp_path, made.name)
    (group,) = record.table.groups
    for to, runs in (("plain", 0), ("se", 5)):
        equal = Equivalence(to, 1.0, 0.0, -0.5, 0.5, 0.01, (0, 1), verdict="equivalent")
        rows = tuple(
            replace(row, equivalence=equal) if row.label == "asr:se" else row for row in group.rows
        )
        table = replace(record.table, groups=(replace(group, rows=rows),))
        assert len(deployable(replace(record, table=table), "asr:se")) == runs
        answer = placement_answer(replace(record, table=table))
        assert ("as good as" in answer) == (to == "se")


def test_a_row_that_is_worse_elsewhere_is_not_deployed(tmp_path: Path) -> None:
    """Better on one data set does not make up for worse on another."""
    made = simulate(tmp_path, data=("cifar10", "cifar100"), gains={"asr:se": 0.5}, epochs=4)
    for entry in made.runs:
        if entry.cell.data == "cifar100" and not entry.cell.plain:
            file = tmp_path / entry.folder / "result.json"
            stored = json.loads(file.read_text())
            stored["values"]["top1"] -= 0.01
            file.write_text(json.dumps(stored))
            (file.parent / "metrics.jsonl").unlink()  # which would deny it
            file.with_name("manifest.json").unlink()
            prove(file.parent)
    page = page_of(tmp_path)
    assert "asr:se folds, but was not shown to be better" in page


def test_a_plain_network_at_chance_is_said_at_the_top(tmp_path: Path) -> None:
    task = Simulated((TOP1,), {"cifar10": 10.2})
    made = simulate(tmp_path, task=task, data=("cifar10",), gains={"asr:se": 0.5}, paper=False)
    assert texts(tmp_path, made.name) == []
    with_facts(tmp_path, test=10_000, chance=0.1)
    assert texts(tmp_path, made.name) == ["The plain network on cifar10 has learned nothing."]
    page = page_of(tmp_path)
    assert page.index("has learned nothing") < page.index("Does it help?")
    assert "See to the alerts at the top first" in page
    assert "Deploy nothing from here" in page
    assert "attnlab fold" not in page
    with_facts(tmp_path, test=10_000, chance=0.05)
    assert texts(tmp_path, made.name) == []


def test_chance_is_judged_by_the_spread_of_a_share(tmp_path: Path) -> None:
    """Of 10,000 images that are 86 % of one class, 88 % are 5.8 binomial deviations more."""
    task = Simulated((TOP1,), {"cifar10": 88.0})
    made = simulate(tmp_path, task=task, data=("cifar10",), gains={"asr:se": 0.5}, paper=False)
    with_facts(tmp_path, test=10_000, chance=0.86)
    assert texts(tmp_path, made.name) == []
    with_facts(tmp_path, test=10_000, chance=0.879)
    assert texts(tmp_path, made.name) == ["The plain network on cifar10 has learned nothing."]


def test_masks_no_better_than_one_class_everywhere_are_said_at_the_top(tmp_path: Path) -> None:
    overlap = Metric(name="miou", label="mIoU", unit="%", scale=100)
    task = Simulated((overlap,), {"cifar10": 10.2})
    made = simulate(tmp_path, task=task, data=("cifar10",), gains={"asr:se": 0.5}, paper=False)
    with_facts(tmp_path, test=16, blind=0.05)
    assert texts(tmp_path, made.name) == []
    with_facts(tmp_path, test=16, blind=0.217)
    assert texts(tmp_path, made.name) == ["The plain network on cifar10 has learned nothing."]
    assert "and the commonest class everywhere has 21.7" in page_of(tmp_path)


def test_a_regression_that_explains_nothing_is_said_at_the_top(tmp_path: Path) -> None:
    explained = Metric(name="r2", label="R²", digits=3, nothing=0.0)
    task = replace(REGRESSION, metrics=(REGRESSION.metrics[0], explained))
    made = simulate(tmp_path, task=task, data=("faces",), gains={"se": 0.0}, epochs=4)
    assert texts(tmp_path, made.name) == []
    for file in tmp_path.glob("*/result.json"):
        stored = json.loads(file.read_text())
        stored["values"]["r2"] = -0.2
        file.write_text(json.dumps(stored))
        prove(file.parent)
    page_of(tmp_path)  # makes the table of what is there now
    assert texts(tmp_path, made.name) == ["The plain network on faces has learned nothing."]


def test_seeds_are_planned_for_an_effect_of_the_size_that_was_seen(tmp_path: Path) -> None:
    """A point of a result in percent; millimetres are not points."""
    percent = tmp_path / "percent"
    simulate(percent, data=("cifar10",), gains={"se": 0.0}, noise=0.3, epochs=4)
    assert "--effect 1 " in f"{' '.join(commands_on(page_of(percent)))} "
    error = tmp_path / "error"
    made = simulate(error, task=REGRESSION, data=("faces",), gains={"se": 0.0}, noise=0.3, epochs=1)
    means = {}
    for row in ("plain", "se"):
        runs = read_record(error, made.name).of(read_record(error, made.name).table.groups[0], row)
        values = [1000 * run.result.values["mae"] for run in runs]
        means[row] = sum(values) / len(values)
    page = page_of(error)
    planned = f"--effect {abs(means['se'] - means['plain']):.1g}"
    assert any(command.endswith(planned) for command in commands_on(page))
    assert "after each epoch" not in page  # tested once: a point, and no curve


def test_diverged_runs_are_said_at_the_top(tmp_path: Path) -> None:
    error = "The loss is nan at step 3 of epoch 1 (learning rate 0.1)."
    made = simulate(tmp_path, data=("cifar10",), gains={"se": 0.5}, finished=0.9, failed=error)
    (told,) = texts(tmp_path, made.name)
    assert told.startswith("1 run diverged: cifar10 resnet20 ")
    run = next(run for run in made.runs if (tmp_path / run.folder / "result.json").is_file())
    file = tmp_path / run.folder / "metrics.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for number, line in enumerate(lines):
        line["train_loss"] = 1.0 + number
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    prove(file.parent)
    assert texts(tmp_path, made.name)[1] == f"1 run ended worse than it began: {run}."


def test_too_few_test_images_are_said_at_the_top(tmp_path: Path) -> None:
    """A gain of half a point is 5 of 1,000 images, which show nothing, and 50 of 10,000."""
    made = simulate(tmp_path, data=("cifar10",), gains={"se": 0.5}, noise=0.02, epochs=4)
    with_facts(tmp_path, test=1000, chance=0.1)
    assert texts(tmp_path, made.name) == [
        "cifar10 has too few test images for this question: 1000."
    ]
    with_facts(tmp_path, test=10_000, chance=0.1)
    assert texts(tmp_path, made.name) == []


def test_how_a_study_is_called() -> None:
    plain = StudyInvocation("demo")
    assert plain.command("plan", "--effect", "1") == "attnlab study plan demo --effect 1"
    assert plain.measure("demo", "speed") == "attnlab study measure demo --only speed"
    own = StudyInvocation("my studies/own.toml", "else/where", small=True, import_from=("a", "b"))
    assert own.command("run") == (
        "attnlab study run 'my studies/own.toml' --small --out else/where --import-from a b"
    )
    assert own.report("own-small", "-o", "x.html") == (
        "attnlab report else/where --study own-small -o x.html"
    )
    assert own.fold("abc") == (
        "attnlab fold else/where/abc -o plain.safetensors --trust --import-from a b"
    )


def test_every_command_of_a_page_runs_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """For a study's file and a gate in other folders. What would train for long is asked for its
    status instead, with the same words."""
    (tmp_path / "my studies").mkdir()
    (tmp_path / "code").mkdir()
    (tmp_path / "my studies" / "own.toml").write_text(STUDY, encoding="utf-8")
    (tmp_path / "code" / "own_gates.py").write_text(GATE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("attnlab.lab.study.LocalExecutor", lambda *_, **__: HereExecutor())
    out = Path("else where")

    def fresh(*words: str) -> None:
        """As in a new process, which has not imported the gate."""
        monkeypatch.setattr(sys, "path", [each for each in sys.path if Path(each).name != "code"])
        monkeypatch.delitem(sys.modules, "own_gates", raising=False)
        main(list(words))

    fresh("study", "run", "my studies/own.toml", "--out", str(out), "--import-from", "code")
    with_facts(out, test=10**6, chance=0.0)  # else so short a training is advised to go on
    commands = commands_on(page_of(out))
    folded = next(run for run in read_record(out, "own").runs if run.entry.cell.row == "asr:se")
    commands += commands_on(page_of(out / folded.entry.folder))
    kinds = {tuple(shlex.split(command)[1:3]) for command in commands}
    assert {("study", "run"), ("study", "plan"), ("report", str(out))} <= kinds
    assert any(command.startswith("attnlab fold ") for command in commands)
    long: list[str] = []
    for command in commands:
        words = shlex.split(command)
        if "--until-decided" in words:
            words = [*words[:2], "status", *(w for w in words[3:] if w != "--until-decided")]
            long.append(command)
        fresh(*words[1:])
    assert len(long) == 1
    assert str(tmp_path) not in " ".join(commands)
    assert Path("plain.safetensors").is_file()
    assert Path("report.html").is_file()
    assert "Traceback" not in capsys.readouterr().err
