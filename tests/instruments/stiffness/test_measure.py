"""`stiffness(model, loader)`: the whole data set at once gives the same; results go round."""

from __future__ import annotations

import json
import math
import warnings
import xml.etree.ElementTree as ElementTree

import pytest
import timm
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import attnlab
from attnlab import _errors
from attnlab.gates import BranchGate
from attnlab.instruments.stiffness import StiffnessResult, StiffnessWarning, nsi, tns
from attnlab.instruments.stiffness.capture import capture
from attnlab.instruments.stiffness.measure import stiffness

IMAGES = torch.randn(24, 3, 32, 32, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return attnlab.create("resnet20").eval()


@pytest.fixture(scope="module")
def result(network):
    labels = torch.zeros(24, dtype=torch.long)
    return stiffness(network, DataLoader(TensorDataset(IMAGES, labels), 10), name="resnet20")


def test_equals_one_big_batch(network, result):
    with capture(network) as steps, torch.no_grad():
        network(IMAGES)
        values = nsi(steps.norms, "state").double()
    assert result.inputs == 24
    assert result.tns == pytest.approx(tns(values, steps.stages).mean().item(), rel=1e-5)
    for column, step in enumerate(result.nsi):
        assert step.mean == pytest.approx(values[:, column].mean().item(), rel=1e-5)
    assert [step.label for step in result.nsi if not step.kept] == ["1.0", "2.0", "3.0"]
    assert sum(step.stiffest_share for step in result.nsi) == pytest.approx(1)
    assert result.stiffest.share == max(step.stiffest_share for step in result.nsi)
    assert result.surface[0][0] == 1.0
    assert result.notes == ()


def test_the_model_is_as_before(network):
    network.train()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    stiffness(network, [IMAGES[:4]])
    assert network.training
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, before[name])
    network.eval()


def test_json_round_trip(result, tmp_path):
    again = StiffnessResult.load(result.save(tmp_path / "result.json"))
    assert again == result
    assert json.loads(result.to_json())["format"] == "attnlab stiffness 1"
    with pytest.raises(_errors.InputError, match="another"):
        StiffnessResult.from_json("{}")


def test_the_stiffest_step_is_stored(result):
    stored = json.loads(result.to_json())
    shares = {step.label: step.stiffest_share for step in result.nsi}
    label = max(shares, key=shares.get)
    name = next(step.name for step in result.nsi if step.label == label)
    assert stored["stiffest"] == {"label": label, "name": name, "share": shares[label]}


def test_no_step_is_the_stiffest_where_none_is_kept():
    class One(nn.Module):
        def forward(self, x):
            return x + torch.tanh(x)

    with pytest.warns(StiffnessWarning):
        found = stiffness(nn.Sequential(One()), [IMAGES[:2]], example=IMAGES[:1])
    assert found.stiffest is None
    assert json.loads(found.to_json())["stiffest"] is None
    assert StiffnessResult.from_json(found.to_json()).stiffest is None
    assert repr(found).endswith("1 stage of 1 steps)")


def test_frame_figures_and_repr(result):
    frame = result.to_frame()
    assert list(frame.index[:3]) == ["1.0", "1.1", "1.2"]
    assert frame.loc["1.1", "mean"] == result.nsi[1].mean
    for name in result.figures():
        ElementTree.fromstring(result.plot(name))
    assert repr(result).startswith("StiffnessResult(resnet20: TNS ")
    with pytest.raises(_errors.UnknownNameError) as error:
        result.plot("surfaces")
    assert str(error.value) == (
        "Unknown figure 'surfaces'. Did you mean 'surface'? Expected one of: nsi, surface, "
        "proportion."
    )


def test_si_of_the_first_inputs(network):
    found = stiffness(network, [IMAGES[:4]], si=1)
    assert [step.label for step in found.nsi if step.si is None] == ["2.0", "3.0"]
    assert all(step.si > 0 for step in found.nsi if step.si is not None)


def test_resnet18_warns():
    net = attnlab.create("torchvision:resnet18")
    with pytest.warns(StiffnessWarning, match="TNS is identically zero"):
        found = stiffness(net, [torch.randn(2, 3, 64, 64)])
    assert found.tns == 0
    assert math.isnan(found.stiffest_share_of_tns)
    assert StiffnessResult.from_json(found.to_json()).nsi == found.nsi


class OneStep(nn.Module):
    """x + 3x: NSI is ‖3x‖ / ‖x‖ = 3 for every input."""

    def __init__(self):
        super().__init__()
        self.branch = nn.Conv2d(2, 2, 1, bias=False)
        self.branch.weight = nn.Parameter(3 * torch.eye(2)[:, :, None, None])

    def forward(self, x):
        return x + self.branch(x)


def test_a_network_of_one_step():
    with pytest.warns(StiffnessWarning, match="TNS is identically zero"):
        result = stiffness(OneStep(), [torch.randn(4, 2, 3, 3)], progress=False)
    (step,) = result.nsi
    assert (step.minimum, step.mean, step.maximum) == pytest.approx((3, 3, 3))


class Half(BranchGate):
    def forward(self, branch):
        return branch.new_full((1, 1, 1, 1), 0.5)

    def start_constant(self):
        return 0.5


def test_gates_are_noted(network):
    gated, _ = attnlab.insert(network, Half)
    found = stiffness(gated, [IMAGES[:4]], convention="paper")
    assert found.notes == (
        "The network has gates; convention 'paper' counts the branch before its gate: a gate of "
        "0.5 doubles NSI and TNS, so networks with attention score higher by convention alone.",
    )
    # NSI of every step is doubled, and with it every M₂ that is reached.
    branch = stiffness(gated, [IMAGES[:4]], convention="branch")
    assert found.tns == pytest.approx(2 * branch.tns, rel=1e-5)


def test_inserted_gates_are_noted_beside_the_networks_own():
    own = timm.create_model(
        "vit_tiny_patch16_224",
        img_size=32,
        patch_size=8,
        embed_dim=24,
        depth=3,
        num_heads=2,
        init_values=0.5,
    )
    gated, _ = attnlab.insert(own.eval(), "token")
    for each, noted in ((gated, True), (own, False)):
        notes = stiffness(each.eval(), [IMAGES[:4]], progress=False).notes
        assert any(note.startswith("The network has gates; ") for note in notes) is noted


class Dead(nn.Module):
    """Switches off for inputs that are negative everywhere: their state is zero."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(3, 3, 1) for _ in range(3))

    def forward(self, x):
        x = torch.relu(x)
        for conv in self.convs:
            x = x + x * torch.tanh(conv(x))
        return x


def test_dead_inputs_are_skipped_and_counted():
    images = torch.randn(6, 3, 4, 4)
    images[1] = -1
    images[4] = -2
    found = stiffness(Dead(), [images])
    assert (found.inputs, found.skipped) == (4, 2)
    assert math.isfinite(found.tns)


def test_loader_messages(network):
    with pytest.raises(_errors.InputError) as error:
        stiffness(network, [])
    assert str(error.value) == "Expected a loader with at least one batch but got an empty one."
    with pytest.raises(_errors.InputError) as error:
        stiffness(network, ["image.png"])
    assert str(error.value) == (
        "Expected batches that are a tensor, start with one or with a list of images, or are a "
        "dictionary of inputs but got "
        "str."
    )


def test_no_bar_without_a_terminal(network, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stiffness(network, [IMAGES[:2]])
    assert capsys.readouterr().err == ""
    stiffness(network, [IMAGES[:2]], progress=True)
    assert "stiffness" in capsys.readouterr().err
