"""`attnlab shorten`, end to end on a run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import attnlab
from attnlab.cli import main
from attnlab.instruments.removal import RANKINGS, ShortenResult
from attnlab.instruments.removal.images import own_images
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
        assert f"({name}) goes: mean change of the output per image 0." in printed
    found = json.loads((out / "shorten.json").read_text())
    usual = [name for name, ranking in RANKINGS.items() if not ranking.on_request]
    assert [curve["ranking"] for curve in found["curves"]] == usual
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


def test_json_is_all_that_is_printed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["shorten", str(run), "--remove", "1", "--by", "nsi", "--limit", "4", "--json"]
    main(given)
    receipt = json.loads(capsys.readouterr().out)
    assert (len(receipt["rows"]), receipt["images"]) == (1, 4)
    main([*given, "--plan", "--most", "1"])
    found = ShortenResult.from_json(capsys.readouterr().out)
    (curve,) = [curve for curve in found.curves if curve.ranking == "nsi"]
    assert curve.points[1].label == receipt["rows"][0]["label"]
    assert curve.points[1].output_change == pytest.approx(receipt["output_change"], rel=1e-5)
    assert ShortenResult.from_json(found.to_json()) == found


def test_images_that_are_not_divided_are_ranked_on_and_judged_on_every_other() -> None:
    subject = attnlab.open("resnet20", "fake", limit=3)
    ranked, judged = own_images(subject)
    images = torch.cat([batch.inputs for batch in replace(subject, limit=6).batches()])
    assert torch.equal(torch.cat([inputs for inputs, _ in ranked]), images[::2])
    assert torch.equal(torch.cat([inputs for inputs, _ in judged]), images[1::2])
    assert all(targets is None for _, targets in (*ranked, *judged)), "made labels mean nothing"


def test_named_steps_need_no_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "s.safetensors"
    main(["shorten", "resnet20", "--remove", "layer1.1", "-o", str(file)])
    assert "1.1 (layer1.1) goes: it was named" in capsys.readouterr().out
    assert len(attnlab.steps(attnlab.load(file))) == 8


WORDS = {
    "shorten RUN --remove 8 --limit 4": (
        "attnlab: Expected to remove at most 7 of the 9 steps of ResNet but got 8. 2.0 (layer2.0) "
        "must stay: its shortcut projects: it changes the shape or the channels of the state, "
        "which the network needs. So must 3.0 (layer3.0), for the same reason.\n"
    ),
    "shorten RUN --remove 2 --by outputt": (
        "attnlab: Unknown ranking 'outputt'. Did you mean 'output'? Expected one of: output, "
        "influence, nsi, tns, loss, kl.\n"
    ),
    "shorten resnet20 --remove 2": (
        "attnlab: 'resnet20' was opened without images: pass data, such as a folder of images or "
        "digits.\n"
    ),
    "shorten resnet20 --data fake --limit 2 --remove 2 --by loss": (
        "attnlab: The ranking 'loss' needs labels, and the images have none. Expected batches that "
        "are pairs of images and classes (whole numbers), or of tokens (inputs, places) and the "
        "token that follows at each place; or a ranking without labels: "
        "by='output'.\n"
    ),
    "shorten resnet20 --data fake --remove 2 -o net.pt": (
        "attnlab: Expected -o to end in .safetensors but got 'net.pt'.\n"
    ),
    "shorten resnet20 --data fake --remove 2 --plan -o net.safetensors": (
        "attnlab: --plan writes no network: leave -o or --plan out.\n"
    ),
    "shorten RUN --remove 2 --part test": (
        "attnlab: --part does not go with shorten, which ranks steps on training images and judges "
        "on test images. Leave it out.\n"
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
