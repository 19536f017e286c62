"""Noise as settings of a run, of a study and of a stored network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.lab.training.small import quiet, run, small, train, weights

import attnlab
from attnlab._errors import InputError, OptionError
from attnlab.lab.study.definition import Study
from attnlab.lab.study.grid import planned_runs
from attnlab.lab.training import RunConfig, identify, load_network
from attnlab.networks.checkpoint import Description
from attnlab.surgery import noise
from attnlab.surgery.noise import NoiseConfig

CONSTANT = {"kind": "constant", "a": 0.8, "b": 0.5}


def message(error: type[Exception], function: Any, *arguments: Any, **settings: Any) -> str:
    with pytest.raises(error) as caught:
        function(*arguments, **settings)
    return str(caught.value)


def test_settings_are_the_noise_that_they_say() -> None:
    assert NoiseConfig(**CONSTANT).build() == noise.constant(0.8, 0.5)  # type: ignore[arg-type]
    assert NoiseConfig(kind="random", sigma=0.3).build() == noise.random(0.3)
    assert NoiseConfig(kind="random", sigma=0.3, per="image").build() == noise.random(0.3, "image")
    assert NoiseConfig(kind="batch", n=4).build() == noise.batch(4)
    assert NoiseConfig(kind="batch", n=4, during="both").label == "batch statistics of 4 in both"


def test_wrong_settings() -> None:
    assert message(OptionError, NoiseConfig, kind="constant", a=0.8) == (
        'Constant noise needs a and b, as in noise = { kind = "constant", a = 0.8, b = 0.8 }.'
    )
    assert message(OptionError, NoiseConfig, kind="random", sigma=0.3, n=4) == (
        "Random noise has no setting 'n'. It has: sigma, per, during."
    )
    assert message(OptionError, NoiseConfig, kind="random", sigma=-0.3) == (
        "Expected sigma to be at least 0 but got -0.3."
    )
    assert message(OptionError, NoiseConfig, kind="randm", sigma=0.3) == (
        "Setting 'kind' of noise: expected 'constant', 'random' or 'batch' but got 'randm'. Did "
        "you mean 'random'?"
    )
    assert message(OptionError, NoiseConfig, kind="random", sigm=0.3) == (
        "Unknown setting 'sigm' of noise. Did you mean 'sigma'? Expected one of: kind, a, b, "
        "sigma, per, n, during."
    )


def test_without_noise_a_run_is_the_one_it_was() -> None:
    assert "noise" not in identify(small()).settings
    assert "branch_scale" not in identify(small()).settings
    ids = {
        identify(small(noise=each)).run_id
        for each in (None, CONSTANT, {**CONSTANT, "b": 0.6}, {**CONSTANT, "during": "training"})
    }
    assert len(ids) == 4


def test_a_run_trains_and_is_read_under_its_noise(tmp_path: Path) -> None:
    config = small(noise=CONSTANT, attention="asr:se")
    result = run(config, tmp_path / "run")
    clean = run(small(attention="asr:se"), tmp_path / "clean")
    assert result.values != clean.values
    found = load_network(tmp_path / "run")
    assert set(noise.carried(found).values()) == {((noise.constant(0.8, 0.5), "both"),)}
    x = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        expected = found(x)
        assert torch.equal(attnlab.load(tmp_path / "run")(x), expected)
        noise.detach(found)
        assert not torch.allclose(found(x), expected, atol=1e-3)


def test_random_noise_repeats_with_the_seed_and_acts_in_training_only(tmp_path: Path) -> None:
    config = small(noise={"kind": "random", "sigma": 0.3})
    for name in ("one", "other"):
        run(config, tmp_path / name)
    found = [weights(tmp_path / name) for name in ("one", "other")]
    assert all(torch.equal(value, found[1][name]) for name, value in found[0].items())
    network = load_network(tmp_path / "one")
    x = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        expected = network(x)
        noise.detach(network)
        assert torch.equal(network(x), expected)


def test_averaged_and_in_two_processes(tmp_path: Path) -> None:
    recipe = {"ema": 0.9, "drop_last": True}
    config = small(1, recipe, noise={"kind": "batch", "n": 4})
    train(config, tmp_path / "run", threads=1, devices=2, progress=quiet)
    assert load_network(tmp_path / "run") is not None


def test_batches_that_are_too_small_are_known_before_training(tmp_path: Path) -> None:
    config = small(noise={"kind": "batch", "n": 16})
    assert message(InputError, run, config, tmp_path) == (
        "The noise takes the statistics of 16 images, but the smallest batch in training has 12 "
        "per process. Set drop_last = true, or another batch_size, or a smaller n."
    )
    config = small(noise={"kind": "batch", "n": 32, "during": "test"})
    assert message(InputError, run, config, tmp_path) == (
        "The noise takes the statistics of 32 images, but the smallest batch in test has 30 per "
        "process. Set another test_batch_size, or a smaller n."
    )


def test_branch_scale_of_a_run(tmp_path: Path) -> None:
    run(small(1, {"lr": 1e-9}, branch_scale=0.5), tmp_path)
    found = weights(tmp_path)
    assert float(found["layer1.0.bn2.weight"].mean()) == pytest.approx(0.5)
    assert float(found["layer1.0.bn1.weight"].mean()) == pytest.approx(1)


def test_a_file_says_its_noise(tmp_path: Path) -> None:
    network = attnlab.create("resnet20", 5).eval()
    noise.attach(network, noise.constant(0.8, 0.5))
    path = attnlab.save(
        network, tmp_path / "a.safetensors", Description("resnet20", 5, noise=CONSTANT)
    )
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(attnlab.load(path)(x), network(x))
    said = message(Exception, attnlab.save, network, path, Description("resnet20", 5))
    assert "its output differs by" in said
    assert message(OptionError, Description, "resnet20", noise={"kind": "random", "sigma": -1}) == (
        "Expected sigma to be at least 0 but got -1.0."
    )


def study(**settings: Any) -> Study:
    return Study(
        **{"name": "s", "data": "digits", "backbone": "resnet20", "seeds": 1, "recipe": "digits"}
        | {"attention": ["none", "se"]}
        | settings
    )


def test_noise_makes_groups_of_a_study_and_a_shorter_branch_is_no_plain_network() -> None:
    made = study(
        backbone=["resnet20", {"name": "resnet20", "noise": CONSTANT}],
        attention=[
            "none",
            {"gate": "none", "branch_scale": 0.5},
            {"gate": "asr:se", "options": {"trainable": False}},
        ],
    )
    runs = planned_runs(made)
    assert {each.cell.group for each in runs} == {
        "digits resnet20",
        "digits resnet20, constant (0.8, 0.5)",
    }
    assert [(each.cell.row, each.cell.plain) for each in runs[:3]] == [
        ("plain", True),
        ("plain, last scale 0.5", False),
        ("asr:se", False),
    ]
    assert runs[3].config.noise == NoiseConfig(**CONSTANT)  # type: ignore[arg-type]
    assert runs[0].config.noise is None
    assert runs[1].config.branch_scale == 0.5
    assert runs[2].config.gate_options == {"trainable": False}
    assert not study(attention=[{"gate": "none", "branch_scale": 0.5}]).has_plain


def test_config_round_trip() -> None:
    config = small(noise=CONSTANT, branch_scale=0.5)
    assert RunConfig.from_json(config.to_json()) == config
