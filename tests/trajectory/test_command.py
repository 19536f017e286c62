"""`attnlab stiffness` from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnlab.cli import main
from attnlab.trajectory import StiffnessResult

DATA = Path(__file__).parents[3] / "shared" / "data"


def test_one_network(capsys, tmp_path):
    main(["stiffness", "resnet20", "--data", "digits", "--limit", "8", "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    assert "layer3.2" in printed
    assert "not counted" in printed
    assert "The weights are random: this is the untrained control" in printed
    assert "attnlab.stiffness(network, loader)" in printed
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [
        "nsi.svg",
        "proportion.svg",
        "stiffness.html",
        "stiffness.json",
        "surface.svg",
    ]
    assert StiffnessResult.load(tmp_path / "stiffness.json").inputs == 8


def test_comparison(capsys, tmp_path):
    command = "stiffness resnet20 resnet32 resnet44 --data fake --limit 4 --attention se"
    main([*command.split(), "--accuracy", "91.7,92.6,93.1", "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    assert "p-values are exact (two-sided)" in printed
    assert "TNS untrained" in printed
    assert "warning: The stage plans differ" in printed
    assert (tmp_path / "comparison.svg").exists()
    assert (tmp_path / "resnet32" / "nsi.svg").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["resnet20", "--accuracy", "91,92"],
            "attnlab: Expected --accuracy to be 1 numbers separated by commas, one per network, "
            "but got '91,92'.\n",
        ),
        (
            ["resnet20", "resnet32", "--weights", "none"],
            "attnlab: Expected one of --weights per network but got 1 for 2 networks; write none "
            "for a network without.\n",
        ),
    ],
)
def test_messages(arguments, message, capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["stiffness", *arguments])
    assert exit_.value.code == 2
    assert capsys.readouterr().err == message


def test_vgg_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["stiffness", "torchvision:vgg11", "--size", "64", "--limit", "2"])
    assert "VGG has no residual step x + f(x)" in capsys.readouterr().err


def test_a_trained_network_on_real_images(capsys):
    weights = DATA / "weights" / "cifar10_resnet20_basic_optionA.pth"
    if not weights.exists() or not (DATA / "cifar10-small.npz").exists():
        pytest.skip(f"no trained weights and CIFAR-10 images in {DATA}")
    command = "stiffness resnet20 --shortcut zero_pad --data cifar10 --limit 100"
    main([*command.split(), "--weights", str(weights), "--root", str(DATA)])
    printed = capsys.readouterr().out
    assert "The weights are random" not in printed
    # The last block of a trained CIFAR ResNet dominates.
    assert "stiffest step 3.2" in printed
