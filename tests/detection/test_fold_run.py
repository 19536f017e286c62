"""`attnlab fold RUN` of a detector: the same boxes and AP without the gates, from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.detection.small import images
from tests.detection.test_measured import same_boxes
from tests.detection.test_training import config
from tests.lab.training.small import run

import attnlab
from attnlab._errors import InputError
from attnlab.cli import main
from attnlab.data import DataConfig
from attnlab.lab.measures import fold_run, load_folded
from attnlab.results import StoredRun
from attnlab.results.manifest import write_manifest
from attnlab.subject import load_network
from attnlab.subject import run as run_module

PICTURES = images((96, 96), (80, 96), (96, 64))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one epoch whose gates have been moved far from where they began."""
    folder = tmp_path_factory.mktemp("runs") / "detector"
    run(config(1, attention="asr:se"), folder)
    weights = load_file(folder / "model.safetensors")
    draw = torch.Generator().manual_seed(0)
    for name in weights:
        if ".attention" in name:
            weights[name] += 0.5 * torch.randn(weights[name].shape, generator=draw)
    save_file(weights, folder / "model.safetensors")
    write_manifest(folder, StoredRun(folder).result.run_id)
    return folder


def test_the_command(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["fold", str(folder), "-o", str(tmp_path / "plain.safetensors")])
    shown = capsys.readouterr().out
    gated = load_network(folder)
    plain = load_folded(folder, tmp_path / "plain.safetensors")
    same_boxes(gated, plain, PICTURES)
    attnlab.remove(gated)  # the gates matter: without them, other boxes
    with pytest.raises(AssertionError):
        same_boxes(gated, plain, PICTURES)
    assert plain.state_dict().keys() == gated.state_dict().keys()
    lines = shown.splitlines()
    assert lines[0] == "folded 9 gates of FasterRCNN"
    at = next(number for number, line in enumerate(lines) if line.startswith("AP  "))
    assert [line.split("  ")[0] for line in lines[at : at + 7]] == [
        "AP",
        "AP50",
        "AP75",
        "AP small",
        "AP medium",
        "AP large",
        "AR",
    ]
    for line in lines[at : at + 7]:
        before, after = line.split("  ")[-1].split(" → ")
        assert before.strip() == after
    assert f"wrote {tmp_path / 'plain.safetensors'} (read back: the same output, bit for bit)" in (
        lines
    )
    _, _, python = shown.partition("In Python:\n")
    first = (tmp_path / "plain.safetensors").read_bytes()
    (tmp_path / "plain.safetensors").unlink()
    namespace: dict[str, Any] = {}
    exec("\n".join(line.strip() for line in python.splitlines()), namespace)
    assert (tmp_path / "plain.safetensors").read_bytes() == first
    same_boxes(namespace["network"], plain, PICTURES)
    folded = namespace["folded"]
    for name, value in folded.before.items():
        assert folded.after[name] == (value if value is None else pytest.approx(value, abs=5e-5))


def test_fused_and_without_data(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(config: DataConfig) -> None:
        raise InputError(f"There is no folder {config.name!r}.")

    monkeypatch.setattr(run_module, "load_data", gone)
    folded = fold_run(folder, fuse=True)
    assert str(folded) == "results not compared: There is no folder 'shapes'."
    assert (folded.before, folded.after) == ({}, {})
    folded.save(tmp_path / "fused.safetensors")
    fused = load_folded(folder, tmp_path / "fused.safetensors")
    same_boxes(load_network(folder), fused, PICTURES)
    norms = [m for m in fused.backbone.body.modules() if isinstance(m, torch.nn.BatchNorm2d)]  # type: ignore[union-attr]
    assert norms == []
    assert StoredRun(folder).result.metrics[0].name == "ap"


def test_what_does_not_go_with_it(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["fold", str(folder), "-o", str(tmp_path / "plain.safetensors"), "--partial"])
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        f"attnlab: --partial does not go with {str(folder)!r}, whose network only its task can "
        f"build. Leave it out, or use attnlab.fold in Python.\n"
    )
