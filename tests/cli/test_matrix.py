"""Every measuring and surgical command takes every kind of source, and one network has the same
figures whatever it was given as."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import attnlab
from attnlab.cli import main
from attnlab.lab.training import RunConfig, train

RECIPE = {"name": "digits", "epochs": 1, "warmup_epochs": 0, "batch_size": 64}
IMAGES = "--limit 16 --batch 16"
MEASURING = {
    "stiffness": "--si 2",
    "stripe": "",
    "place": "--budget 2 --part test",
    "noise": "--kind constant",
}
GATED = ("stripe",)


def words(text: str) -> list[str]:
    return text.split()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, of a plain network and of one with constant gates, with their weights alone."""
    made = tmp_path_factory.mktemp("matrix")
    data = {"name": "digits", "train_subset": 128}
    for name, gate in (("plain", "none"), ("gated", "asr:se")):
        config = RunConfig(data=data, backbone="resnet20", attention=gate, recipe=RECIPE)
        train(config, made / name)
        torch.save(attnlab.load(made / name).state_dict(), made / f"{name}.pth")
    return made


def sources(folder: Path, name: str) -> dict[str, list[str]]:
    """The ways to give one network with its images to a command."""
    facts = attnlab.open(folder / name).images().facts
    prepared = ["--size", "8", "--mean", *map(str, facts.mean), "--std", *map(str, facts.std)]
    digits = ["--data", "digits", *prepared]
    gate = words("--gate asr:se --place branch") if name == "gated" else []
    found = {
        "run": [str(folder / name)],
        "file": [str(folder / name / "model.safetensors"), "--data", "digits"],
        "foreign file": [
            *(str(folder / f"{name}.pth"), "--model", "resnet20", "--num-classes", "10"),
            *gate,
            *digits,
        ],
    }
    if name == "plain":
        weights = str(folder / name / "model.safetensors")
        found["name"] = ["resnet20", "--weights", weights, *digits]
    return found


LEFT_OUT = ("network", "seconds", "provenance", "notes")
"""What differs by how a network was given: its name, the time, and where it comes from."""


def differences(one: Any, other: Any, place: str = "") -> list[str]:
    """The places at which two results differ by more than 1e-9."""
    if isinstance(one, dict) and isinstance(other, dict):
        found = [f"{place}: {one.keys() ^ other.keys()}"] if one.keys() != other.keys() else []
        names = [name for name in one if name in other and name not in LEFT_OUT]
        return found + [d for n in names for d in differences(one[n], other[n], f"{place}.{n}")]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [d for n, pair in pairs for d in differences(*pair, f"{place}[{n}]")]
    if isinstance(one, float) and isinstance(other, float):
        return [] if one == pytest.approx(other, rel=1e-9, abs=1e-12) else [place]
    return [] if one == other else [place]


@pytest.mark.parametrize("command", MEASURING)
def test_a_measurement_is_the_same_for_every_kind_of_source(command, folder, capsys):
    network = "gated" if command in GATED else "plain"
    found = {}
    for kind, source in sources(folder, network).items():
        main([command, *source, *words(MEASURING[command]), *words(IMAGES), "--json"])
        found[kind] = json.loads(capsys.readouterr().out)
    for kind, content in found.items():
        assert content["format"].split()[1] == command, kind
        assert differences(content, found["run"]) == [], kind


def test_the_command_and_the_study_have_one_tns(folder, capsys):
    from attnlab.instruments.measurement import MeasureConfig
    from attnlab.instruments.stiffness import StiffnessResult
    from attnlab.lab.measures import measure_run
    from attnlab.results import StoredRun

    measure_run(folder / "gated", MeasureConfig(images=64), only=["stiffness"])
    stored = StoredRun(folder / "gated").measured_result(StiffnessResult)
    for source in sources(folder, "gated").values():
        main(["stiffness", *source, "--limit", "64", "--json"])
        assert json.loads(capsys.readouterr().out)["tns"] == pytest.approx(stored.tns, rel=1e-9)


@pytest.mark.parametrize("options", ["", "--constants --tolerance 1"])
def test_a_fold_is_the_same_for_every_kind_of_source(options, folder, tmp_path, capsys):
    answers = {}
    x = torch.randn(2, 3, 8, 8)
    for kind, source in sources(folder, "gated").items():
        out = tmp_path / f"{kind.replace(' ', '-')}.safetensors"
        main(["fold", *source, *words(options), "--limit", "16", "-o", str(out)])
        answers[kind] = attnlab.load(out)(x)
        plain = attnlab.load(out)
        assert sum(p.numel() for p in plain.parameters()) == sum(
            p.numel() for p in attnlab.create("resnet20").parameters()
        )
    capsys.readouterr()
    expected = attnlab.load(folder / "gated")(x)
    for kind, answer in answers.items():
        torch.testing.assert_close(answer, expected, msg=kind)


def test_fuse_takes_every_kind_of_source(folder, tmp_path, capsys):
    x = torch.ones(1, 3, 8, 8)
    expected = attnlab.load(folder / "plain")(x)
    for kind, source in sources(folder, "plain").items():
        out = tmp_path / f"{kind.replace(' ', '-')}.safetensors"
        main(["fuse", *source, "--json", "-o", str(out)])
        found = json.loads(capsys.readouterr().out)
        assert (found["format"], found["norms_after"]) == ("attnlab fuse 1", 0)
        torch.testing.assert_close(attnlab.load(out)(x), expected, msg=kind)


def test_shorten_insert_and_try_take_every_kind_of_source(folder, tmp_path, capsys):
    removed, sites = {}, {}
    for kind, source in sources(folder, "plain").items():
        main(["shorten", *source, "--remove", "2", "--limit", "16", "--json"])
        removed[kind] = json.loads(capsys.readouterr().out)["sites"]
        out = tmp_path / f"{kind.replace(' ', '-')}.safetensors"
        main(["insert", *source, "--gate", "se", "--start", "identity", "-o", str(out)])
        sites[kind] = attnlab.load(out)(torch.ones(1, 3, 8, 8))
        main(["try", "se", *source])
        assert "sites" in capsys.readouterr().out
    assert len({str(each) for each in removed.values()}) == 1
    first = sites["run"]
    assert all(torch.allclose(each, first, atol=1e-6) for each in sites.values())
