"""`attnlab shorten`, end to end on a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import attnlab
from attnlab.cli import main
from attnlab.instruments.removal import RANKINGS
from attnlab.lab.training import RunConfig, train
from attnlab.networks.checkpoint import describe


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    config = RunConfig.model_validate(
        {
            "data": {"name": "digits", "train_subset": 60, "test_subset": 30},
            "backbone": "resnet20",
            "attention": "se",
            "recipe": {"name": "digits", "epochs": 1, "warmup_epochs": 0, "batch_size": 20},
        }
    )
    train(config, folder, threads=1, progress=lambda _: None)
    return folder


def test_shortens_a_run(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = tmp_path / "s.safetensors", tmp_path / "page"
    options = f"--remove 2 --limit 20 --most 3 --out {out} -o {file}"
    main(["shorten", str(run), *options.split()])
    printed = capsys.readouterr().out
    shorter = attnlab.load(file)
    assert len(attnlab.steps(shorter, torch.randn(1, 3, 8, 8))) == 7
    described = describe(file)
    assert described is not None
    assert len(described.shortened) == 2
    for name in described.shortened:
        assert f"({name}) goes: relative change of the output 0." in printed
    found = json.loads((out / "shorten.json").read_text())
    assert [curve["ranking"] for curve in found["curves"]] == list(RANKINGS)
    assert all(len(curve["points"]) == 4 for curve in found["curves"])
    assert (found["images"], found["test_images"], found["same_images"]) == (20, 20, False)
    page = (out / "shorten.html").read_text()
    assert "What is lost as steps go?" in page
    assert "its shortcut projects" in page
    assert (out / "accuracy.svg").read_text().startswith("<svg")


def test_plan_writes_nothing(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    main(["shorten", str(run), "--remove", "1", "--by", "nsi", "--limit", "10", "--plan"])
    lines = capsys.readouterr().out.splitlines()
    (goes,) = [line for line in lines if " goes: NSI " in line]
    assert "the next has" in goes
    rows = [line.split() for line in lines if line.strip()[:1] in ("0", "1", "2")]
    assert [row[0] for row in rows[:3]] == ["0", "1", "2"]
    assert list(tmp_path.iterdir()) == []


WORDS = {
    "shorten RUN --remove 8 --limit 4": (
        "attnlab: Expected to remove at most 7 of the 9 steps of ResNet but got 8. 2.0 (layer2.0) "
        "must stay: its shortcut projects: it changes the shape or the channels of the state, "
        "which the network needs. So must 3.0 (layer3.0), for the same reason.\n"
    ),
    "shorten RUN --remove 2 --by outputt": (
        "attnlab: Unknown ranking 'outputt'. Did you mean 'output'? Expected one of: output, "
        "influence, nsi, tns, loss.\n"
    ),
    "shorten resnet20 --remove 2": (
        "attnlab: 'resnet20' is not a run's folder, so the images to test it on must be given: "
        "data with classes, such as digits, cifar10 or npz.\n"
    ),
    "shorten resnet20 --data fake --limit 2 --remove 2 --by loss": (
        "attnlab: The ranking 'loss' needs labels, and the images have none. Expected batches that "
        "are pairs of images and classes (whole numbers), or a ranking without labels: "
        "by='output'.\n"
    ),
    "shorten resnet20 --data fake --remove 2 -o net.pt": (
        "attnlab: Expected -o to end in .safetensors but got 'net.pt'.\n"
    ),
    "shorten resnet20 --data fake --remove 2 --plan -o net.safetensors": (
        "attnlab: --plan writes no network: leave -o or --plan out.\n"
    ),
    "shorten resnet20 --data fake --remove 0 --limit 2": (
        "attnlab: Expected remove to be at least 1 but got 0.\n"
    ),
}


@pytest.mark.parametrize("command", WORDS)
def test_words(command: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(command.replace("RUN", str(run)).split())
    assert capsys.readouterr().err == WORDS[command]
