"""`attnlab fold --constants --budget ...`: with classes, without, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

import attnlab
from attnlab.cli import main
from attnlab.networks.checkpoint import load
from attnlab.subject import Subject
from attnlab.surgery.folding import FoldReceipt

from .networks import stir

NAME = "timm:mobilenetv3_small_050"


@pytest.fixture
def network(tmp_path: Path) -> nn.Module:
    torch.manual_seed(0)
    network = stir(attnlab.create(NAME, 3)).eval()
    save_file(network.state_dict(), tmp_path / "mine.safetensors")
    return network


def photographs(folder: Path, count: int, classes: tuple[str, ...] = ("",)) -> Path:
    generator = torch.Generator().manual_seed(0)
    for number in range(count):
        place = folder / classes[number % len(classes)]
        place.mkdir(parents=True, exist_ok=True)
        pixels = torch.randint(256, (32, 32, 3), generator=generator, dtype=torch.uint8)
        Image.fromarray(pixels.numpy()).save(place / f"{number}.png")
    return folder


def opened(place: Path, folder: Path) -> Subject:
    """The network on all images of a folder."""
    return attnlab.open(NAME, folder, weights=place / "mine.safetensors", num_classes=3, size=32)


def fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as raised:
        main(["fold", *arguments])
    assert raised.value.code == 2
    return capsys.readouterr().err


def test_own_weights_and_a_folder_without_classes(tmp_path, capsys, network):
    folder = photographs(tmp_path / "photos", 40)
    output = tmp_path / "plain.safetensors"
    common = [NAME, "--weights", str(tmp_path / "mine.safetensors"), "--num-classes", "3"]
    common += ["--size", "32", "--constants", "--data", str(folder)]
    main(["fold", *common, "--plan", "--budget", "all"])
    printed = capsys.readouterr().out
    said = "images: their labels are not known to be the network's own classes: no accuracy\n"
    assert said in printed
    assert "total change of the output, chosen on 20 images, held out 20: 9 gates" in printed
    assert "  budget all: 9 of 9 go\n" in printed
    assert not output.exists()
    main(["fold", *common, "--budget", "all", "-o", str(output)])
    printed = capsys.readouterr().out
    assert "folded 9 gates of MobileNetV3" in printed
    assert "accuracy" not in printed.replace("no accuracy", "")
    receipt = FoldReceipt.load(tmp_path / "plain.fold.json")
    assert "What does it cost?" in (tmp_path / "plain.fold.html").read_text(encoding="utf-8")
    ((images, _),) = opened(tmp_path, folder).batches()
    with torch.no_grad():
        before, after = (each(images[1::2]) for each in (network, load(output).eval()))
    assert receipt.measured == pytest.approx(float((after - before).norm() / before.norm()), 1e-3)


@pytest.mark.usefixtures("network")
def test_a_data_set_has_classes_and_no_folders(tmp_path, capsys):
    common = [NAME, "--weights", str(tmp_path / "mine.safetensors"), "--num-classes", "3"]
    common += ["--size", "32", "--constants", "--data", "digits"]
    main(["fold", *common, "--limit", "32", "--plan"])
    printed = capsys.readouterr().out
    said = "images: their labels are not known to be the network's own classes: no accuracy\n"
    assert said in printed


def test_accuracy_where_the_folders_are_the_classes(tmp_path, capsys, network):
    folder = photographs(tmp_path / "photos", 36, ("ape", "bee", "cat"))
    common = [NAME, "--weights", str(tmp_path / "mine.safetensors"), "--num-classes", "3"]
    common += [
        "--size",
        "32",
        "--constants",
        "--data",
        str(folder),
        "-o",
        str(tmp_path / "p.safetensors"),
    ]
    main(["fold", *common, "--tolerance", "1"])
    printed = capsys.readouterr().out
    said = "images: their labels are taken for the network's own classes"
    assert said in printed
    right = [0, 0]
    plain = load(tmp_path / "p.safetensors").eval()
    for images, classes in opened(tmp_path, folder).batches():
        with torch.no_grad():
            for number, each in enumerate((network, plain)):
                right[number] += int((each(images).argmax(1) == classes).sum())
    before, after = (100 * count / 36 for count in right)
    assert f"accuracy    {before:.2f} → {after:.2f} % on what made the constants" in printed


def test_messages_speak_of_options(tmp_path, capsys, network):
    del network
    few = photographs(tmp_path / "few", 31)
    common = [NAME, "--weights", str(tmp_path / "mine.safetensors"), "--num-classes", "3"]
    common += ["--size", "32"]
    output = ["-o", str(tmp_path / "p.safetensors")]
    data = ["--constants", "--data", str(few)]
    assert fails(capsys, *common, *data, "--budget", "0.1", *output) == (
        "attnlab: There are 31 images. Expected at least 32 for a budget: half of them "
        "choose, and half are held out to measure what was chosen. Some hundreds are better.\n"
    )
    assert fails(capsys, *common, *data, "--budget", "0.1") == (
        "attnlab: Expected where to write: -o NAME.safetensors; or --plan, to look only.\n"
    )
    assert fails(capsys, *common, "--plan") == (
        "attnlab: --plan is for gates that are made constant from images: give --constants as "
        "well.\n"
    )
    assert fails(capsys, *common, "--constants", *output) == (
        f"attnlab: {NAME!r} was opened without images: pass data, such as a folder of images or "
        f"digits.\n"
    )
    assert fails(capsys, *common, *data, "--gates", "SELayer", *output) == (
        "attnlab: Expected --gates as CLASS=SUBMODULE, for example SELayer=fc, but got 'SELayer'.\n"
    )
    assert fails(capsys, *common, *data, "--epochs", "2", *output) == (
        "attnlab: --epochs and --moving belong to the repair: give --repair distil as well.\n"
    )
    assert fails(capsys, *common, *data, "--repair", "distil", *output) == (
        "attnlab: --repair is for what --budget changes: give it as well.\n"
    )
    assert not (tmp_path / "p.safetensors").exists()
