"""`attnlab fold`: files in, files out, and nothing written when anything is wrong."""

from __future__ import annotations

import os
import pickle
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.lab.training.small import run, small
from torch import nn

import attnlab
from attnlab._errors import InputError
from attnlab.cli import main
from attnlab.data import DataConfig
from attnlab.networks.checkpoint import Description, describe, load, save
from attnlab.subject import run as run_module

from .networks import relative, stir, stir_gates

IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
ASR = Description("resnet20", num_classes=5, gate="asr:se")


@pytest.fixture
def network() -> nn.Module:
    torch.manual_seed(0)
    return stir_gates(stir(ASR.build())).eval()


def fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The message of a command that ends with exit code 2."""
    with pytest.raises(SystemExit) as raised:
        main(["fold", *arguments])
    assert raised.value.code == 2
    return capsys.readouterr().err


def test_command(tmp_path, capsys, network):
    source, output, onnx = (
        tmp_path / name for name in ("a.safetensors", "p.safetensors", "p.onnx")
    )
    save(network, source, ASR)
    main(["fold", str(source), "-o", str(output), "--onnx", str(onnx), "--sites"])
    printed = capsys.readouterr().out
    assert "folded 9 gates of ResNet" in printed
    assert re.search(r"layer1\.0\.bn2 +layer1\.0\.bn2\.weight, layer1\.0\.bn2\.bias +0\.", printed)
    assert f"wrote {output} (read back: the same output, bit for bit)" in printed

    # The plain network of the same name takes the file as it is.
    plain = attnlab.create("resnet20", num_classes=5, weights=output).eval()
    expected, _ = attnlab.fold(network)
    with torch.no_grad():
        assert torch.equal(plain(IMAGES), expected(IMAGES))
        assert relative(network(IMAGES), plain(IMAGES)) < 1e-5
    assert f"wrote {tmp_path / 'p.fold.json'} and {tmp_path / 'p.fold.html'}" in printed
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "a.safetensors",
        "p.fold.html",
        "p.fold.json",
        "p.onnx",
        "p.safetensors",
    ]

    import onnxruntime

    session = onnxruntime.InferenceSession(str(onnx), providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    for images in (IMAGES, IMAGES[:1], torch.cat((IMAGES, IMAGES))):
        found = torch.from_numpy(session.run(None, {given.name: images.numpy()})[0])
        with torch.no_grad():
            assert relative(network(images), found) < 1e-4


def test_printed_python_does_the_same(tmp_path, capsys, network, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(network, "a.safetensors", ASR)
    main(["fold", "a.safetensors", "-o", "p.safetensors"])
    lines = capsys.readouterr().out.partition("In Python:\n")[2].splitlines()
    scope: dict[str, object] = {}
    exec("\n".join(line.strip() for line in lines), scope)
    for name, value in load_file("p.safetensors").items():
        assert torch.equal(value, scope["plain"].state_dict()[name])


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_file_that_says_nothing(tmp_path, capsys, network, suffix):
    source, output = tmp_path / f"weights{suffix}", tmp_path / "p.safetensors"
    if suffix == ".pt":
        torch.save(network.state_dict(), source)
    else:
        save_file(network.state_dict(), source)
    message = fails(capsys, str(source), "-o", str(output))
    assert message == (
        f"attnlab: {str(source)!r} does not say which network it belongs to. Pass it, for example: "
        f"model='resnet164', gate='asr:se', num_classes=100; in a command --model resnet164 "
        f"--gate asr:se --num-classes 100.\n"
    )
    options = ["--model", "resnet20", "--gate", "asr:se", "--num-classes", "5"]
    main(["fold", str(source), "-o", str(output), *options])
    assert set(load_file(output)) == set(attnlab.create("resnet20").state_dict())


def test_truncated(tmp_path, capsys, network):
    source, output = tmp_path / "a.safetensors", tmp_path / "p.safetensors"
    save(network, source, ASR)
    for length in (0, 7, 1000, source.stat().st_size - 1):
        part = tmp_path / "part.safetensors"
        part.write_bytes(source.read_bytes()[:length])
        message = fails(capsys, str(part), "-o", str(output), "--model", "resnet20")
        assert "is truncated, damaged or of another format" in message
        assert not output.exists()
    torch.save(network.state_dict(), tmp_path / "a.pt")
    part = tmp_path / "part.pt"
    part.write_bytes((tmp_path / "a.pt").read_bytes()[:5000])
    message = fails(capsys, str(part), "-o", str(output), "--model", "resnet20")
    assert str(part) in message
    assert not output.exists()


def test_wrong_keys(tmp_path, capsys, network):
    source, output = tmp_path / "a.safetensors", tmp_path / "p.safetensors"
    output.write_text("what was there before")
    save(network, source, ASR)
    options = ["--model", "resnet32", "--gate", "asr:se", "--num-classes", "5"]
    message = fails(capsys, str(source), "-o", str(output), *options)
    assert "do not fit ResNet: 90 missing (layer1.3." in message
    assert output.read_text() == "what was there before"
    options = ["--model", "resnet20", "--num-classes", "5"]
    message = fails(capsys, str(source), "-o", str(output), *options)
    assert "45 unexpected (layer1.0.attnlab." in message
    assert output.read_text() == "what was there before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.safetensors", "p.safetensors"]


class Evil:
    """Unpickling it makes a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


def test_pickle_with_code(tmp_path, capsys):
    folder, output = tmp_path / "made", tmp_path / "p.safetensors"
    for name, write in (
        ("a.pt", lambda path: torch.save({"weight": Evil(folder)}, path)),
        ("b.pt", lambda path: path.write_bytes(pickle.dumps(Evil(folder), protocol=2))),
    ):
        source = tmp_path / name
        write(source)
        message = fails(capsys, str(source), "-o", str(output), "--model", "resnet20")
        assert "Refused to read" in message
        assert "can run code" in message
        assert not folder.exists()
        assert not output.exists()


def test_whole_model_is_refused(tmp_path, capsys):
    torch.save(nn.Linear(2, 2), tmp_path / "model.pt")
    output = tmp_path / "p.safetensors"
    message = fails(capsys, str(tmp_path / "model.pt"), "-o", str(output), "--model", "resnet20")
    assert "Refused to read" in message
    assert not output.exists()


def test_gates_that_cannot_be_folded(tmp_path, capsys):
    description = Description("resnet20", gate="se")
    source, output = tmp_path / "a.safetensors", tmp_path / "p.safetensors"
    save(description.build(), source, description)
    message = fails(capsys, str(source), "-o", str(output))
    assert "The gates of 9 of 9 sites cannot be folded" in message
    assert not output.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("none.safetensors", "-o", "p.safetensors"), "There is no file 'none.safetensors'."),
        (("resnet20", "-o", "p.pt"), "Expected -o to end in .safetensors but got 'p.pt'"),
        (("resnet20", "-o", "no/p.safetensors"), "There is no folder 'no' to write to."),
        (
            ("resnet20", "-o", "p.safetensors", "--onnx", "no/p.onnx"),
            "There is no folder 'no' to write to.",
        ),
        (("resnet21", "-o", "p.safetensors"), "Unknown network 'resnet21'. Did you mean"),
        (("resnet20", "-o", "p.safetensors"), "ResNet carries no gate that could be folded"),
        (
            ("resnet20", "-o", "p.safetensors", "--model", "resnet20"),
            "model does not go with 'resnet20', which is a name and not a file of weights.",
        ),
    ],
)
def test_arguments(tmp_path, capsys, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert message in fails(capsys, *arguments)
    assert not list(tmp_path.iterdir())


def test_nothing_that_is_read_is_written_over(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    description = Description("resnet20", gate="asr:se")
    source = save(description.build(), "a.safetensors", description)
    (tmp_path / "link.safetensors").symlink_to("a.safetensors")
    before = source.read_bytes()
    for output in ("a.safetensors", "./a.safetensors", "link.safetensors"):
        for words in (("a.safetensors",), ("resnet20", "--weights", "a.safetensors")):
            assert "would be written over what is read" in fails(capsys, *words, "-o", output)
    others = (["insert", "--gate", "se"], ["fuse"], ["shorten", "--remove", "1"])
    for command, *options in others:
        with pytest.raises(SystemExit):
            main([command, "a.safetensors", *options, "-o", "a.safetensors"])
        assert "would be written over what is read" in capsys.readouterr().err
    assert source.read_bytes() == before
    (tmp_path / "run").mkdir()
    weights = tmp_path / "run" / "model.safetensors"
    weights.write_bytes(before)
    message = fails(capsys, "run", "-o", "run/model.safetensors")
    assert "would be written over what is read" in message
    assert weights.read_bytes() == before
    copied = tmp_path / "a.weights"  # any name: what a file holds says which network it is
    copied.write_bytes(before)
    main(["fold", "a.weights", "-o", "p.safetensors"])
    assert describe("p.safetensors") == replace(description, kept=[])


def test_fused_file(tmp_path, capsys):
    output = tmp_path / "fast.safetensors"
    main(["fold", "repvgg_a0", "-o", str(output), "--fuse"])
    assert "fused RepVGG" in capsys.readouterr().out
    assert describe(output) == Description("repvgg_a0", kept=[], fused=True)
    network = load(output)
    torch.manual_seed(0)
    expected = attnlab.create("repvgg_a0").eval()
    with torch.no_grad():
        assert relative(expected(IMAGES), network(IMAGES)) < 1e-5


def test_constants_of_a_timm_network(tmp_path, capsys):
    output = tmp_path / "p.safetensors"
    arguments = [
        "--constants",
        "--data",
        "fake",
        "--limit",
        "4",
        "--tolerance",
        "1",
        "--size",
        "64",
    ]
    main(["fold", "timm:mobilenetv3_small_050", "-o", str(output), *arguments])
    assert "folded 9 gates of MobileNetV3" in capsys.readouterr().out
    described = describe(output)
    assert len(described.removed) == 9
    assert not any(".se." in name for name in load(output).state_dict())


def test_gates_that_stay_are_in_the_file(tmp_path):
    description = Description("resnet20", gate="asr:se+se", where="stages:1,2")
    torch.manual_seed(0)
    network = stir_gates(stir(description.build())).eval()
    source, output = tmp_path / "a.safetensors", tmp_path / "p.safetensors"
    save(network, source, description)
    main(["fold", str(source), "-o", str(output), "--partial"])
    again = load(output)
    assert len(describe(output).kept) == 6
    with torch.no_grad():
        assert relative(network(IMAGES), again(IMAGES)) < 1e-5


def test_folder_of_a_run(tmp_path, capsys, monkeypatch):
    """Its own images and classes make constants; an exact fold does without them."""
    run(small(1, attention="asr:se"), tmp_path / "run")
    output = tmp_path / "p.safetensors"
    main(["fold", str(tmp_path / "run"), "-o", str(output)])
    printed = capsys.readouterr().out
    assert "folded 9 gates" in printed
    assert f"subject = attnlab.open({str(tmp_path / 'run')!r})" in printed
    first = output.read_bytes()
    main(["fold", str(tmp_path / "run" / "model.safetensors"), "-o", str(output)])
    assert output.read_bytes() == first
    capsys.readouterr()

    def gone(config: DataConfig) -> None:
        raise InputError(f"There is no folder {config.name!r}.")

    monkeypatch.setattr(run_module, "load_data", gone)
    main(["fold", str(tmp_path / "run"), "-o", str(output)])
    assert output.read_bytes() == first
    assert "open_run(" in capsys.readouterr().out
    message = fails(capsys, str(tmp_path / "run"), "--constants", "--plan")
    assert message == "attnlab: There is no folder 'digits'.\n"


@pytest.mark.parametrize(
    "options",
    [
        ("--gate", "se"),
        ("--where", "stages:1"),
        ("--start", "identity"),
        ("--place", "norm"),
        ("--shared",),
        ("--num-classes", "5"),
    ],
)
def test_options_without_their_network_are_refused(tmp_path, capsys, network, options):
    """A file that describes itself would else be folded as if they had not been given."""
    source = save(network, tmp_path / "a.safetensors", ASR)
    message = fails(capsys, str(source), "-o", str(tmp_path / "p.safetensors"), *options)
    name = options[0].removeprefix("--").replace("-", "_")
    assert message == (
        f"attnlab: {name} does not go with {str(source)!r} without model, the network that it "
        f"belongs to. Leave it out.\n"
    )


BARE = """
from torch import nn

class Bare(nn.Module):
    input_size = (3, 8, 8)
    def __init__(self, num_classes=4):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 1)
        self.norm = nn.BatchNorm2d(8, affine=False)
        self.head = nn.Linear(8, num_classes)
    def forward(self, x):
        x = self.stem(x)
        return self.head((x + self.norm(x)).mean((2, 3)))
"""


def test_the_flag_that_the_refusal_advises(tmp_path, capsys, monkeypatch):
    (tmp_path / "bare_norm.py").write_text(BARE)
    monkeypatch.syspath_prepend(tmp_path)
    description = Description("bare_norm.Bare", gate="asr:se")
    torch.manual_seed(0)
    network = stir_gates(stir(description.build())).eval()
    source, output = tmp_path / "a.safetensors", tmp_path / "p.safetensors"
    save(network, source, description)
    command = (str(source), "--trust", "-o", str(output))
    message = fails(capsys, *command)
    assert "Give norms without affine parameters some, which adds keys: --add-affine." in message
    assert not output.exists()
    main(["fold", *command, "--add-affine"])
    assert "added affine parameters, so new keys, to norm" in capsys.readouterr().out
    assert describe(output).affine == ["norm"]
    with torch.no_grad():
        images = IMAGES[:, :, :8, :8]
        assert relative(network(images), load(output, trust=True)(images)) < 1e-5


def test_the_size_of_the_images_is_that_of_the_description(tmp_path):
    """Else gates that are replaced by their means are measured on images of another size."""
    described = Description("resnet20", gate="se", input_size=[3, 16, 16])
    torch.manual_seed(0)
    source = save(stir_gates(described.build()), tmp_path / "a.safetensors", described)
    seen = []
    hook = nn.modules.module.register_module_forward_pre_hook(
        lambda module, given: seen.append(given[0].shape) if hasattr(module, "conv1") else None
    )
    try:
        arguments = ["--constants", "--data", "fake", "--limit", "4", "--tolerance", "9"]
        main(["fold", str(source), "-o", str(tmp_path / "p.safetensors"), *arguments])
        assert {tuple(shape[2:]) for shape in seen if shape[1] == 3} == {(16, 16)}
        seen.clear()
        arguments += ["--size", "24"]
        main(["fold", str(source), "-o", str(tmp_path / "p.safetensors"), *arguments])
        assert (24, 24) in {tuple(shape[2:]) for shape in seen if len(shape) == 4}
    finally:
        hook.remove()
    assert describe(tmp_path / "p.safetensors").input_size == [3, 24, 24]
