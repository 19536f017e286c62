"""`attnlab.save(network, file)`: a network knows how it was built and what was done to it."""

from __future__ import annotations

import copy
import importlib
import pickle
import sys
from collections.abc import Callable
from types import ModuleType

import pytest
import timm
import torch
import torchvision
from tests.surgery.folding.networks import stir, stir_gates
from torch import Tensor, nn

import attnlab
from attnlab import evolution
from attnlab._errors import OptionError, WeightsError
from attnlab.networks.checkpoint import Description, describe
from attnlab.networks.preprocessing import Preprocessing
from attnlab.surgery import noise

OWN = """
from torch import nn

class Own(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.branch = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width))
        self.head = nn.Linear(width, 4)

    def forward(self, x):
        x = self.stem(x)
        x = (x + self.branch(x)).relu()
        return self.head(x.mean((2, 3)))
"""
IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def own(tmp_path, monkeypatch) -> Callable[..., nn.Module]:
    (tmp_path / "saved_networks.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "saved_networks", raising=False)
    import saved_networks

    built: Callable[..., nn.Module] = saved_networks.Own
    return built


def gated(network: nn.Module, gate: str = "asr:se", **options: object) -> nn.Module:
    found, _ = attnlab.insert(stir(network).eval(), gate, example=IMAGES, **options)
    return stir_gates(found)


def fused(network: nn.Module) -> nn.Module:
    return attnlab.fuse(stir(network).eval(), example=IMAGES)[0]


def removed() -> nn.Module:
    network = gated(attnlab.create("resnet20"))
    attnlab.remove(network)
    return network


def read_and_folded(tmp_path) -> nn.Module:
    path = attnlab.save(gated(attnlab.create("resnet20")), tmp_path / "first.safetensors")
    return attnlab.fold(attnlab.load(path))[0]


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "ours": lambda: attnlab.create("resnet20", num_classes=7, shortcut="zero_pad"),
    "gates": lambda: gated(attnlab.create("resnet20"), "se", where="stages:2,3", reduction=4),
    "gates, by a function": lambda: gated(
        attnlab.create("resnet20"), "se", where=lambda site: site.stage == 2
    ),
    "gates in norms": lambda: attnlab.insert(attnlab.create("resnet20"), "iebn")[0],
    "gates removed": removed,
    "folded": lambda: attnlab.fold(gated(attnlab.create("resnet20")))[0],
    "folded in part": lambda: attnlab.fold(
        gated(attnlab.create("resnet20"), "asr:se+se"), partial=True
    )[0],
    "folded and fused": lambda: attnlab.fold(gated(attnlab.create("resnet20")), fuse=True)[0],
    "fused": lambda: fused(attnlab.create("resnet56_acnet")),
    "shortened": lambda: attnlab.shorten(
        gated(attnlab.create("resnet20")), ["1.1"], example=IMAGES
    )[0],
    "timm": lambda: timm.create_model("resnet18", num_classes=5),
    "timm with gates": lambda: gated(timm.create_model("resnet18", num_classes=5), "se"),
    "timm fused": lambda: fused(timm.create_model("repvgg_a0", num_classes=5)),
    "torchvision": lambda: torchvision.models.resnet18(num_classes=3),
    "torchvision folded": lambda: attnlab.fold(
        gated(torchvision.models.resnet18(num_classes=3)), example=IMAGES
    )[0],
}


def check(network: nn.Module, tmp_path) -> None:
    """Written and read, it is equal to the bit; and what was read is written again as it was."""
    network = network.eval()
    path = attnlab.save(network, tmp_path / "net.safetensors")
    found = attnlab.load(path, trust=True)
    with torch.no_grad():
        assert torch.equal(found(IMAGES), network(IMAGES))
    state, other = network.state_dict(), found.state_dict()
    assert state.keys() == other.keys()
    assert all(torch.equal(state[name], other[name]) for name in state)
    again = attnlab.save(found, tmp_path / "again.safetensors")
    assert again.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("kind", NETWORKS)
def test_it_is_read_back_equal_to_the_bit(kind, tmp_path):
    check(NETWORKS[kind](), tmp_path)


def test_a_network_that_was_read_knows_what_was_done_since(tmp_path):
    check(read_and_folded(tmp_path), tmp_path)


def test_own_classes(own, tmp_path):
    check(gated(own(), "se"), tmp_path)
    check(attnlab.create("saved_networks.Own", width=6), tmp_path)
    with pytest.raises(OptionError) as raised:
        attnlab.save(own(width=5), tmp_path / "own.safetensors")
    assert str(raised.value) == (
        "How this Own was built is not known: attnlab did not build it, and 'saved_networks.Own' "
        "with its default arguments is another network. Build it by "
        "attnlab.create('saved_networks.Own', ...), which is remembered, or say how: "
        "attnlab.save(network, path, Description('saved_networks.Own', model_options={...})), with "
        "Description of attnlab.networks.checkpoint."
    )


OPERATORS = """
from attnlab import evolution

class Narrow(evolution.EvolutionConv2d):
    def __init__(self, in_channels, out_channels, kernel_size, experts=2, **layer):
        function = evolution.MixtureFunction(in_channels, out_channels, kernel_size, experts)
        super().__init__(in_channels, out_channels, kernel_size, function, **layer)

class Stiff(evolution.EvolutionConv2d):
    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__(in_channels, out_channels, kernel_size, None)
"""


@pytest.fixture
def operators(tmp_path, monkeypatch) -> ModuleType:
    (tmp_path / "saved_operators.py").write_text(OPERATORS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "saved_operators", raising=False)
    return importlib.import_module("saved_operators")


def replaced(network: nn.Module, operator: object, **options: object) -> nn.Module:
    where = "*3.1.conv2" if "where" not in options else options.pop("where")
    return stir(evolution.replace(network, operator, where, IMAGES, **options)[0])


def test_operators_in_the_place_of_convolutions(tmp_path, operators):
    network = attnlab.create("resnet20")
    check(replaced(network, "involution", kernel_size=(5, 7)), tmp_path)
    check(replaced(network, "dynamic", experts=3), tmp_path)
    check(gated(replaced(torchvision.models.resnet18(), "local_attention", heads=2)), tmp_path)
    check(replaced(replaced(network, "involution"), "dynamic", where=["layer2.1.conv1"]), tmp_path)
    check(replaced(network, operators.Narrow, experts=3), tmp_path)
    check(attnlab.fold(gated(replaced(network, "saved_operators.Narrow")))[0], tmp_path)
    with pytest.raises(WeightsError, match=r"not attnlab's \(saved_operators.Narrow\).*trust=True"):
        attnlab.load(tmp_path / "net.safetensors")


def test_what_no_file_can_say_of_operators(tmp_path, operators):
    network, path = attnlab.create("resnet20"), tmp_path / "net.safetensors"
    by_function = replaced(network, lambda c: operators.Narrow(64, 64, c.kernel_size, padding=1))
    with pytest.raises(OptionError, match=r"The operator at layer3.1.conv2 is a function"):
        attnlab.save(by_function, path)
    with pytest.raises(OptionError, match=r"Expected Stiff to be built as .*unexpected keyword"):
        replaced(network, operators.Stiff)
    with pytest.raises(OptionError, match=r"no option 'expert'. Did you mean 'experts'"):
        replaced(network, operators.Narrow, expert=3)
    with pytest.raises(OptionError, match=r"Expected an operator, its sites and its options"):
        Description("resnet20", operators=[{"operator": "involution"}])
    assert not path.exists()


def test_what_only_training_shows_is_not_lost(tmp_path):
    """The same tensors and the same answers, but another rate of dropout."""
    network = timm.create_model("resnet18", num_classes=5, drop_rate=0.3)
    with pytest.raises(OptionError, match=r"How this ResNet was built is not known"):
        attnlab.save(network, tmp_path / "net.safetensors")
    check(attnlab.create("timm:resnet18", num_classes=5, drop_rate=0.3), tmp_path)
    assert attnlab.load(tmp_path / "net.safetensors").drop_rate == 0.3


def test_what_cannot_be_known_is_refused(tmp_path):
    class Inside(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x

    path = tmp_path / "net.safetensors"
    with pytest.raises(OptionError, match=r"No file can name .*Inside'.*Put it into a module"):
        attnlab.save(Inside(), path)
    twice = attnlab.insert(gated(attnlab.create("resnet20")), "se")[0]
    with pytest.raises(OptionError, match=r"twice \('asr:se', then 'se'\).*'asr:se\+se'"):
        attnlab.save(twice, path)
    changed = attnlab.create("resnet20")
    changed.fc = nn.Linear(64, 7)
    with pytest.raises(WeightsError, match=r"^ResNet was changed by hand since it was built"):
        attnlab.save(changed, path)
    noisy = attnlab.create("resnet20")
    noise.attach(noisy, noise.constant(0.8, 0.8))
    with pytest.raises(OptionError, match=r"^There is noise in the norms of ResNet"):
        attnlab.save(noisy, path)
    assert not path.exists()


def test_files_say_which_preprocessing_they_need(tmp_path, monkeypatch):
    """Of published weights it is the library's; else it can be given, and it stays."""
    given = Preprocessing((3, 32, 32), (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    path = attnlab.save(attnlab.create("resnet20"), tmp_path / "a.safetensors", preprocessing=given)
    again = attnlab.save(attnlab.load(path), tmp_path / "b.safetensors")
    found = describe(again)
    assert found is not None
    assert found.preprocessing == given
    plain = timm.create_model
    monkeypatch.setattr(timm, "create_model", lambda name, pretrained, **o: plain(name, **o))  # noqa: ARG005
    network = attnlab.create("timm:resnet18", weights="pretrained")  # without fetching them
    known = describe(attnlab.save(network, tmp_path / "c.safetensors"))
    assert known is not None
    assert known.preprocessing is not None
    assert known.preprocessing.mean == network.pretrained_cfg["mean"]
    unknown = describe(attnlab.save(attnlab.create("timm:resnet18"), tmp_path / "d.safetensors"))
    assert unknown is not None
    assert unknown.preprocessing is None


def test_a_pickled_network_needs_no_attnlab():
    """The notes are plain data: nothing of attnlab is named in the pickle of timm's network."""
    network = attnlab.create("timm:resnet18", num_classes=3)
    assert b"attnlab." not in pickle.dumps(network)
    assert describe is not None
    assert copy.deepcopy(network)._surgery_history == network._surgery_history


def test_hugging_face(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        image_size=16, patch_size=8,
    )  # fmt: skip
    network = transformers.ViTModel(config).eval()
    images = torch.randn(1, 3, 16, 16)
    with pytest.raises(OptionError, match=r"without gates, so it needs nothing of attnlab"):
        attnlab.save(network, tmp_path / "vit")
    network, _ = attnlab.insert(network, "asr:se", example=images)
    with pytest.raises(OptionError, match=r"Expected a path without a suffix, such as 'vit'"):
        attnlab.save(network, tmp_path / "vit.safetensors")
    found = attnlab.load(attnlab.save(stir_gates(network), tmp_path / "vit"))
    with torch.no_grad():
        assert torch.equal(found(images)[0], network(images)[0])
