"""`attnlab stiffness` from the command line."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from PIL import Image
from safetensors.torch import save_file

import attnlab
from attnlab.cli import main
from attnlab.instruments.stiffness import StiffnessResult

DATA = Path(__file__).parents[4] / "shared" / "data"


def test_one_network(capsys, tmp_path):
    main(["stiffness", "resnet20", "--data", "digits", "--limit", "8", "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    assert "layer3.2" in printed
    assert "not counted" in printed
    assert "The weights are random: this is the untrained control" in printed
    assert "attnlab.stiffness(attnlab.open('resnet20', data='digits', limit=8))" in printed
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [
        "nsi.svg",
        "proportion.svg",
        "stiffness.html",
        "stiffness.json",
        "surface.svg",
    ]
    found = StiffnessResult.load(tmp_path / "stiffness.json")
    assert found.inputs == 8
    assert found.provenance is not None
    assert found.provenance.command == (
        f"attnlab stiffness resnet20 --data digits --limit 8 --out {tmp_path}"
    )
    assert not found.provenance.trained
    page = (tmp_path / "stiffness.html").read_text(encoding="utf-8")
    for text in (
        "The weights are random: this is the untrained control, not a trained network.",
        found.provenance.command,
        found.provenance.data_checksum,
        found.provenance.date,
    ):
        assert text in page


def test_provenance_of_files_is_their_content(tmp_path, capsys):
    """Against sha256sum's own lines, made here by hashlib."""
    weights, photos = tmp_path / "w.safetensors", tmp_path / "photos"
    save_file(attnlab.create("resnet20").state_dict(), weights)
    photos.mkdir()
    for name in ("b.png", "a.png"):
        Image.new("RGB", (8, 8), (name[0] == "a" and "red") or "blue").save(photos / name)
    command = f"stiffness resnet20 --data {photos} --weights {weights} --gate eca --size 16"
    main([*command.split(), "--out", str(tmp_path / "out")])
    capsys.readouterr()
    found = StiffnessResult.load(tmp_path / "out" / "stiffness.json").provenance
    assert found is not None
    assert (found.network, found.gate, found.data) == ("resnet20", "eca", str(photos))
    assert found.weights_checksum == hashlib.sha256(weights.read_bytes()).hexdigest()
    lines = "".join(
        f"{hashlib.sha256((photos / name).read_bytes()).hexdigest()}  {name}\n"
        for name in ("a.png", "b.png")
    )
    assert found.data_checksum == hashlib.sha256(lines.encode()).hexdigest()
    page = (tmp_path / "out" / "stiffness.html").read_text(encoding="utf-8")
    assert "resnet20 with eca" in page
    assert "untrained" not in page


def test_a_network_whose_branches_are_zero_is_explained(capsys):
    """timm starts the last norm of each block at 0."""
    main(["stiffness", "timm:resnet50", "--limit", "2", "--size", "32", "--batch", "2"])
    printed = capsys.readouterr().out
    assert "nan" not in printed
    assert "an input's stiffest step has no share of a TNS of 0" in printed
    assert "note: Every step's branch is zero, as in networks that start with zero-init" in printed


def test_comparison(capsys, tmp_path):
    command = "stiffness resnet20 resnet32 resnet44 --data fake --limit 4 --gate se"
    main([*command.split(), "--accuracy", "91.7", "92.6", "93.1", "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    assert "p exact, two-sided" in printed
    assert "TNS untrained" in printed
    assert "note: The stage plans differ" in printed
    assert (tmp_path / "comparison.svg").exists()
    assert (tmp_path / "resnet32" / "nsi.svg").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            [],
            "attnlab: Expected at least one network, for example: attnlab stiffness resnet20 "
            "--data digits.\n",
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


def test_transformer_options(capsys, tmp_path):
    network = "timm:test_vit"
    command = ["stiffness", network, "--data", "fake", "--limit", "2", "--out", str(tmp_path)]
    options = ["--convention", "normed", "--granularity", "block", "--tokens", "patch"]
    main([*command, *options])
    printed = capsys.readouterr().out
    assert f"{network}, NSI by convention 'normed', patch tokens" in printed
    assert "the first block of every stage is not counted" in printed
    assert (
        f"attnlab.stiffness(attnlab.open({network!r}, data='fake', limit=2), "
        f"convention='normed', granularity='block', tokens='patch')"
    ) in printed
    found = StiffnessResult.load(tmp_path / "stiffness.json")
    assert (found.convention, found.granularity, found.tokens) == ("normed", "block", "patch")
    assert "patch tokens" in (tmp_path / "stiffness.html").read_text(encoding="utf-8")
