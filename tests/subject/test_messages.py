"""What people forget when they open a network is said, with the form that works."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pytest
import torch
from tests.surgery.folding.networks import stir, stir_gates
from torch import nn

import attnlab
from attnlab._errors import InputError, OptionError, UnknownNameError, WeightsError
from attnlab.cli import main
from attnlab.networks.backbones.unwrap import WeightsNote

IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
GATES = """
import torch
from torch import nn
from attnlab.gates import BranchGate

class Bare(BranchGate):
    pass

class Narrow(BranchGate):
    def __init__(self):
        super().__init__(1)
    def forward(self, branch):
        return branch
    def start_constant(self):
        return 1.0

class Crashes(BranchGate):
    def __init__(self, channels):
        super().__init__(channels)
        self.layer = nn.Linear(7, 7)
    def forward(self, branch):
        return self.layer(branch.mean((2, 3)))
    def start_constant(self):
        return 0.5

class Shapeless(BranchGate):
    def forward(self, branch):
        return torch.ones(5)
    def start_constant(self):
        return 1.0
"""


def gated(start: str = "paper") -> nn.Module:
    network, _ = attnlab.insert(stir(attnlab.create("resnet20")).eval(), "asr:se", start=start)
    return stir_gates(network)


def written(folder: Path, content: object) -> Path:
    path = folder / "net.pt"
    torch.save(content, path)
    return path


def test_a_name_with_the_weights_of_its_gated_network(tmp_path):
    network = gated()
    path = written(tmp_path, network.state_dict())
    found = attnlab.open("resnet20", weights=path, gate="asr:se").network
    with torch.no_grad():
        assert torch.equal(found(IMAGES), network(IMAGES))
    with pytest.raises(WeightsError, match=r"holds a network with gates, and which is not said"):
        attnlab.open("resnet20", weights=path)
    with pytest.raises(WeightsError, match=r"^The file holds gates, and none are asked for: pass"):
        attnlab.open(path, model="resnet20")


@pytest.mark.parametrize(("start", "other"), [("identity", "paper"), ("paper", "identity")])
def test_another_start_is_recognised(tmp_path, start, other):
    path = written(tmp_path, gated(start).state_dict())
    with pytest.raises(WeightsError) as raised:
        attnlab.open(path, model="resnet20", gate="asr:se", start=other)
    assert str(raised.value).startswith(
        f"The gates of the file began with start={start!r}: pass that, --start {start}."
    )
    attnlab.open(path, model="resnet20", gate="asr:se", start=start)


def test_another_gate_is_not_called_another_start(tmp_path):
    path = written(tmp_path, gated("paper").state_dict())
    with pytest.raises(WeightsError) as raised:
        attnlab.open(path, model="resnet20", gate="eca")
    assert "began with start" not in str(raised.value)


def test_gates_that_the_file_does_not_hold(tmp_path):
    path = written(tmp_path, attnlab.create("resnet20").state_dict())
    with pytest.raises(WeightsError, match=r"^The file holds no gates: leave gate='asr:se' out"):
        attnlab.open(path, model="resnet20", gate="asr:se")


@pytest.mark.parametrize("name", ["r20.pt", "r20.npz", "r20.weights", "runs/r20.onnx"])
def test_a_missing_file_is_not_a_missing_module(name):
    with pytest.raises(WeightsError) as raised:
        attnlab.open(name)
    assert str(raised.value) == f"There is no file {name!r}."


def test_weights_that_are_no_file_are_those_of_the_library():
    with pytest.raises(WeightsError) as raised:
        attnlab.open("resnet20", weights="pretraned")
    assert str(raised.value) == (
        "There is no file of weights at 'pretraned'. Expected the path of a .safetensors or torch "
        "file; attnlab ships no trained weights for 'resnet20'."
    )


def test_a_class_may_still_be_missing():
    with pytest.raises(UnknownNameError, match=r"There is no module 'no_such_module'"):
        attnlab.open("no_such_module.Net")


@pytest.mark.parametrize("entries", [("state_dict", "state_dict_ema"), ("model", "model_ema")])
def test_averaged_weights_are_said_and_chosen(tmp_path, entries):
    now, mean = attnlab.create("resnet20").eval(), stir(attnlab.create("resnet20")).eval()
    path = written(tmp_path, dict(zip(entries, (now.state_dict(), mean.state_dict()), strict=True)))
    with pytest.warns(
        WeightsNote, match=rf"Took '{entries[0]}'.*'{entries[1]}', too: attnlab.open"
    ):
        first = attnlab.open("resnet20", weights=path).network
    with pytest.warns(WeightsNote, match=rf"Took '{entries[1]}'"):
        named = attnlab.open("resnet20", weights=path, ema=True).network
    with pytest.warns(WeightsNote, match=rf"Took '{entries[1]}'"):
        filed = attnlab.open(path, model="resnet20", ema=True).network
    with torch.no_grad():
        assert torch.equal(first(IMAGES), now(IMAGES))
        assert torch.equal(named(IMAGES), mean(IMAGES))
        assert torch.equal(filed(IMAGES), mean(IMAGES))


def test_there_may_be_no_average(tmp_path):
    path = written(tmp_path, attnlab.create("resnet20").state_dict())
    with pytest.raises(WeightsError, match=r"holds no running average of weights \(EMA\)"):
        attnlab.open(path, model="resnet20", ema=True)
    with pytest.raises(OptionError, match=r"^ema is for a checkpoint that holds"):
        attnlab.open("resnet20", ema=True)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Bare", "Gate 'message_gates.Bare' lacks forward and start_constant. A gate defines "),
        ("Narrow", "Gate 'message_gates.Narrow' takes no channels. Expected def __init__(self, "),
        ("Crashes", "The gate 'message_gates.Crashes' fails when the network runs: RuntimeError: "),
        ("Shapeless", "The gate 'message_gates.Shapeless' fails when the network runs: Runtime"),
    ],
)
def test_a_gate_that_lacks_something_is_one_line(tmp_path, monkeypatch, name, said):
    (tmp_path / "message_gates.py").write_text(GATES)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises((OptionError, InputError)) as raised:
        attnlab.insert(attnlab.create("resnet20"), f"message_gates.{name}")
    assert str(raised.value).startswith(said)
    assert "\n" not in str(raised.value)
    if name == "Crashes":
        assert "(message_gates.py, line 22: return self.layer(branch." in str(raised.value)


@pytest.mark.filterwarnings("default")
def test_a_warning_of_a_command_is_one_line_without_code(tmp_path, capsys, monkeypatch):
    def shown(message, category, file, line, *_):  # as Python does; pytest keeps them instead
        sys.stderr.write(warnings.formatwarning(message, category, file, line))

    monkeypatch.setattr(warnings, "showwarning", shown)
    path = written(tmp_path, {"model": gated().state_dict(), "epoch": 3})
    out = str(tmp_path / "plain.safetensors")
    main(["fold", str(path), "--model", "resnet20", "--gate", "asr:se", "-o", out])
    said = capsys.readouterr().err
    assert said == f"note: Took 'model' of {str(path)!r}.\n"
