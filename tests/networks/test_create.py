"""One way to build a network, and what it says when it cannot."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import timm
import torch
import torchvision
from safetensors.torch import save_file
from torch import nn

from attnlab._errors import AttnlabError, OptionError, UnknownNameError, WeightsError
from attnlab.networks.create import create, list_networks


def same_state(a: nn.Module, b: nn.Module) -> bool:
    left, right = a.state_dict(), b.state_dict()
    return list(left) == list(right) and all(torch.equal(left[k], right[k]) for k in left)


def message(kind: type[AttnlabError], name: str, **arguments: object) -> str:
    with pytest.raises(kind) as error, torch.device("meta"):
        create(name, **arguments)
    return str(error.value)


@pytest.fixture
def no_download(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise AssertionError("tried to fetch weights")

    monkeypatch.setattr("torch.hub.load_state_dict_from_url", refuse)
    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", refuse)
    monkeypatch.setattr("timm.models._builder.load_state_dict_from_hf", refuse)
    monkeypatch.setattr("timm.models._builder.load_state_dict_from_url", refuse)


def test_own() -> None:
    assert create("resnet20").fc.out_features == 10
    network = create("resnet20", 7, in_channels=1, shortcut="zero_pad")
    assert network.fc.out_features == 7
    assert network.input_size == (1, 32, 32)


@pytest.mark.usefixtures("no_download")
def test_library_networks_are_the_libraries() -> None:
    torch.manual_seed(0)
    network = create("timm:resnet18", num_classes=5, in_chans=1)
    torch.manual_seed(0)
    assert same_state(network, timm.create_model("resnet18", num_classes=5, in_chans=1))
    torch.manual_seed(0)
    network = create("torchvision:resnet18", num_classes=5)
    torch.manual_seed(0)
    assert same_state(network, torchvision.models.resnet18(num_classes=5))
    with torch.device("meta"):
        assert create("timm:resnet18").num_classes == 1000
        assert create("timm:resnet18.a1_in1k").num_classes == 1000


@pytest.mark.usefixtures("no_download")
def test_detectors_do_not_fetch_their_backbone() -> None:
    create("torchvision:lraspp_mobilenet_v3_large")


def test_the_library_weights_are_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    trained = timm.create_model("resnet18", num_classes=1000)
    save_file(trained.state_dict(), tmp_path / "model.safetensors")
    network = create(
        "timm:resnet18",
        weights="pretrained",
        pretrained_cfg_overlay={"file": str(tmp_path / "model.safetensors")},
    )
    assert same_state(network, trained)

    source = torchvision.models.resnet18()
    monkeypatch.setattr(
        "torchvision.models._api.load_state_dict_from_url",
        lambda *_arguments, **_options: source.state_dict(),
    )
    assert same_state(create("torchvision:resnet18", weights="DEFAULT"), source)
    assert same_state(create("torchvision:resnet18", weights="IMAGENET1K_V1"), source)
    with pytest.raises(OptionError) as error:
        create("torchvision:resnet18", num_classes=10, weights="DEFAULT")
    assert str(error.value) == (
        "torchvision:resnet18 with published weights: The parameter 'num_classes' expected value "
        "1000 but got 10 instead. Pass new_head=True, which leaves its last layer untrained."
    )
    renewed = create("torchvision:resnet18", 10, "DEFAULT", new_head=True)
    assert renewed.fc.weight.shape == (10, 512)
    assert torch.equal(renewed.layer4[1].conv2.weight, source.layer4[1].conv2.weight)


@pytest.mark.parametrize("name", ["resnet20", "timm:resnet10t", "torchvision:squeezenet1_1"])
@pytest.mark.usefixtures("no_download")
def test_weights_from_a_file(name: str, tmp_path: Path) -> None:
    source = create(name, num_classes=3)
    save_file(source.state_dict(), tmp_path / "w.safetensors")
    torch.save(source.state_dict(), tmp_path / "w.pth")
    assert same_state(create(name, num_classes=3, weights=tmp_path / "w.pth"), source)
    assert same_state(create(name, 3, str(tmp_path / "w.safetensors")), source)
    with pytest.raises(WeightsError, match="of another shape"):
        create(name, num_classes=4, weights=tmp_path / "w.pth")


@pytest.mark.parametrize("name", ["resnet20", "timm:resnet10t", "torchvision:squeezenet1_1"])
def test_a_new_head_on_trained_weights(name: str, tmp_path: Path) -> None:
    source = create(name, num_classes=7)
    path = tmp_path / "w.safetensors"
    save_file(source.state_dict(), path)
    torch.manual_seed(0)
    network = create(name, num_classes=3, weights=path, new_head=True)
    torch.manual_seed(0)
    untrained = create(name, num_classes=3).state_dict()
    changed = [
        k for k, v in network.state_dict().items() if v.shape != source.state_dict()[k].shape
    ]
    assert len(changed) == 2  # weight and bias of the last layer, as they start
    for key, value in network.state_dict().items():
        assert torch.equal(value, untrained[key] if key in changed else source.state_dict()[key])
    with pytest.raises(WeightsError) as error:
        create(name, num_classes=7, weights=path, new_head=True)
    assert str(error.value) == (
        f"new_head=True, but no tensor in {str(path)!r} differs from {type(source).__name__} "
        "with 7 classes in its first axis alone. Leave new_head out if the last layer is to be "
        "kept."
    )


def test_when_a_new_head_is_proposed(tmp_path: Path) -> None:
    save_file(create("resnet20", in_channels=1).state_dict(), tmp_path / "grey.safetensors")
    save_file(create("resnet20", 7).state_dict(), tmp_path / "seven.safetensors")
    hint = "For another number of classes, pass new_head=True."
    assert message_of(tmp_path / "seven.safetensors").endswith(f"is the same network. {hint}")
    assert message_of(tmp_path / "grey.safetensors").endswith("is the same network.")
    turned = dict(reversed(create("resnet20", 7).state_dict().items()))
    torch.save(turned, tmp_path / "turned.pt")  # the last layer of the network, not of the file
    assert message_of(tmp_path / "turned.pt").endswith(f"is the same network. {hint}")
    whole = create("resnet20").state_dict()
    for missing in ("layer1.0.bn1.weight", "fc.bias"):
        state = {name: value for name, value in whole.items() if name != missing}
        save_file(state, tmp_path / "part.safetensors")
        assert f"1 missing ({missing}). Build" in message_of(tmp_path / "part.safetensors")
        assert message_of(tmp_path / "part.safetensors").endswith("is the same network.")
    wider = {**whole, "layer1.0.bn1.bias": torch.zeros(7)}  # by its shape alone, also a head
    save_file(wider, tmp_path / "wider.safetensors")
    assert message_of(tmp_path / "wider.safetensors").endswith("is the same network.")
    for half in ({}, {"num_classes": 7}, {"weights": tmp_path / "part.safetensors"}):
        assert message(OptionError, "resnet20", new_head=True, **half) == (
            "new_head=True needs num_classes and weights."
        )


def message_of(path: Path) -> str:
    with pytest.raises(WeightsError) as error:
        create("resnet20", weights=path)
    return str(error.value)


def test_public_name_of_the_classifier(tmp_path: Path) -> None:
    source = create("resnet20")
    public = {k.replace("fc.", "linear."): v for k, v in source.state_dict().items()}
    torch.save(public, tmp_path / "w.pth")
    assert same_state(create("resnet20", weights=tmp_path / "w.pth"), source)


def test_unknown_names() -> None:
    assert message(UnknownNameError, "resnet_164").startswith(
        "Unknown network 'resnet_164'. Did you mean 'resnet164'"
    )
    assert message(UnknownNameError, "resnet50") == (
        "'resnet50' is not one of attnlab's own networks. "
        "Did you mean 'timm:resnet50' or 'torchvision:resnet50'?"
    )
    assert message(UnknownNameError, "resnet50.a1_in1k") == (
        "'resnet50.a1_in1k' is not one of attnlab's own networks. "
        "Did you mean 'timm:resnet50.a1_in1k'?"
    )
    assert message(UnknownNameError, "timm:resnet5o").startswith(
        "timm has no network 'resnet5o'. Did you mean 'timm:resnet50'"
    )
    assert message(UnknownNameError, "timm:hf-hub:someone/something").startswith(
        "timm has no network 'hf-hub:someone/something'."
    )
    assert message(UnknownNameError, "torchvision:resnet5o") == (
        "torchvision has no network 'resnet5o'. Did you mean 'torchvision:resnet50' or "
        "'torchvision:resnet152' or 'torchvision:resnet34'? "
        "All of its names: `torchvision.models.list_models()`."
    )
    assert message(UnknownNameError, "tim:resnet50") == (
        "Unknown library 'tim'. Did you mean 'timm'? Expected one of: timm, torchvision, smp, "
        "transformers, transformers-masked."
    )
    assert message(UnknownNameError, "timm:resnet18.a1_in2k").startswith(
        "Unknown pretrained tag of timm:resnet18 'a1_in2k'. Did you mean 'a1_in1k'"
    )


def test_unknown_options() -> None:
    assert message(OptionError, "resnet20", in_chanels=1) == (
        "Network 'resnet20' has no option 'in_chanels'. Did you mean 'in_channels'? "
        "It takes: in_channels, shortcut, parameters."
    )
    assert message(OptionError, "resnet20", depth=32) == (
        "Network 'resnet20' has no option 'depth'. It takes: in_channels, shortcut, parameters."
    )
    assert message(OptionError, "timm:resnet18", colour=1) == (
        "timm:resnet18 has no option 'colour'."
    )
    assert message(OptionError, "torchvision:resnet18", colour=1) == (
        "torchvision:resnet18 has no option 'colour'."
    )
    assert message(OptionError, "timm:swin_tiny_patch4_window7_224", windw_size=4).startswith(
        "timm:swin_tiny_patch4_window7_224 has no option 'windw_size'. Did you mean 'window_size'"
    )
    assert message(OptionError, "timm:resnet18", pretrained=True) == (
        "Expected weights='pretrained' or weights=PATH instead of timm's 'pretrained'."
    )


def test_options_that_reach_a_configuration_are_kept() -> None:
    with torch.device("meta"):
        assert "EcaModule" in repr(create("timm:resnet51q", attn_layer="eca"))
        assert create("timm:naflexvit_base_patch16_gap", embed_dim=384).embed_dim == 384
        assert create("timm:swin_tiny_patch4_window7_224", window_size=4, img_size=64)


def test_weights_that_are_not_there() -> None:
    start = (
        "There is no file of weights at 'pretraned'. Expected the path of a .safetensors or torch "
        "file; "
    )
    assert message(WeightsError, "resnet20", weights="pretraned") == (
        start + "attnlab ships no trained weights for 'resnet20'."
    )
    assert message(WeightsError, "timm:resnet18", weights="pretraned") == (
        start + "timm's own weights are weights='pretrained'."
    )
    assert message(WeightsError, "torchvision:resnet18", weights="pretraned") == (
        start + "the names of torchvision's own weights for it: IMAGENET1K_V1, DEFAULT."
    )


def test_timm_and_torchvision_are_imported_when_needed() -> None:
    code = (
        "import sys; from attnlab.networks.create import create; create('resnet20'); "
        "print([m for m in ('timm', 'torchvision') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_folder_that_is_not_there_is_said_to_be_missing() -> None:
    with pytest.raises(UnknownNameError) as error:
        create("runs/none")
    assert str(error.value) == (
        "There is no file or folder 'runs/none', and no network has a '/' in its name."
    )


@pytest.mark.parametrize("library", ["attnlab", "timm", "torchvision", "smp"])
def test_all_networks_are_those_of_every_library(library: str) -> None:
    own = list_networks(library)
    assert own
    assert own.items() <= list_networks().items()
