"""Files of weights that say which network they belong to."""

from __future__ import annotations

import copy
import json
import socket
import statistics
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tests.surgery.folding.networks import relative, stir, stir_gates
from torch import nn

import attnlab
from attnlab._errors import AttnlabError, OptionError, WeightsError
from attnlab.networks.checkpoint import Description, describe, load, save, to_bytes, without_weights

IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
ASR = Description("resnet20", num_classes=5, gate="asr:se")


def made(description: Description) -> nn.Module:
    """A network whose every vector is off its start."""
    torch.manual_seed(0)
    return stir_gates(stir(description.build())).eval()


def answer(network: nn.Module, images: torch.Tensor = IMAGES) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = network(images)
    return found


def refused(kind: type[AttnlabError], function: Any, *arguments: Any, **options: Any) -> str:
    with pytest.raises(kind) as error:
        function(*arguments, **options)
    return str(error.value)


def test_a_network_comes_back(tmp_path: Path) -> None:
    description = Description(
        "resnet20",
        5,
        {"shortcut": "zero_pad"},
        "se",
        ["layer2.1.bn2", "layer3.2.bn2"],
        "identity",
        {"reduction": 4},
        [3, 16, 16],
    )
    network = made(description).train()
    path = attnlab.save(network, tmp_path / "new" / "w.safetensors", description)
    assert network.training
    again = attnlab.load(path)
    assert not again.training
    assert torch.equal(answer(again), answer(network.eval()))
    assert describe(path) == description


def test_a_file_holds_what_has_not_its_default(tmp_path: Path) -> None:
    """So that an older version reads it, as long as it needs nothing that is newer."""
    path = save(made(ASR), tmp_path / "w.safetensors", ASR)
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    assert json.loads(metadata["attnlab"]) == {
        "model": "resnet20",
        "num_classes": 5,
        "gate": "asr:se",
    }
    assert path.read_bytes() == to_bytes(load(path), ASR)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_precision_comes_back(dtype: torch.dtype, tmp_path: Path) -> None:
    network = made(ASR).to(dtype)
    again = load(save(network, tmp_path / "w.safetensors", ASR))
    assert {value.dtype for value in again.parameters()} == {dtype}
    for name, value in network.state_dict().items():
        assert torch.equal(again.state_dict()[name], value)
    assert torch.equal(answer(again, IMAGES.to(dtype)), answer(network, IMAGES.to(dtype)))


def test_mixed_precision_comes_back(tmp_path: Path) -> None:
    network = made(Description("resnet20"))
    network.fc.double()
    with pytest.raises(RuntimeError):
        answer(network)  # it does not run, so names and shapes alone are compared
    again = load(save(network, tmp_path / "w.safetensors", Description("resnet20")))
    assert again.fc.weight.dtype == torch.float64
    assert torch.equal(again.fc.weight, network.fc.weight)
    assert again.conv1.weight.dtype == torch.float32


def test_channels_last_is_saved(tmp_path: Path) -> None:
    network = made(ASR).to(memory_format=torch.channels_last)
    path = save(network, tmp_path / "w.safetensors", ASR)
    for name, value in load_file(path).items():
        assert torch.equal(value, network.state_dict()[name])


def test_tied_tensors_are_saved(tmp_path: Path) -> None:
    network = attnlab.create("resnet20")
    network.layer1[0].bn1.weight = network.layer1[0].bn2.weight
    path = save(network, tmp_path / "a.safetensors", Description("resnet20"))
    assert set(load_file(path)) == set(network.state_dict())


class Tied(nn.Module):
    """One weight in two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(3, 3), nn.Linear(3, 3)
        self.other.weight = self.one.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.other(self.one(x))


def test_tied_tensors_stay_tied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tied", sys.modules[__name__])
    network, description = Tied().double(), Description("tied.Tied", input_size=[4, 2, 3])
    again = load(save(network, tmp_path / "w.safetensors", description), trust=True)
    assert again.other.weight is again.one.weight
    assert torch.equal(again.one.weight, network.one.weight)


def test_random_numbers_and_modes_are_left_alone(tmp_path: Path) -> None:
    network = made(ASR).train()
    network.layer1.eval()
    state = torch.random.get_rng_state()
    load(save(network, tmp_path / "w.safetensors", ASR))
    assert torch.equal(state, torch.random.get_rng_state())
    assert network.layer2.training
    assert not network.layer1.training


def test_another_networks_description_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    message = refused(WeightsError, save, made(ASR), path, Description("resnet20", 5))
    assert message.startswith(
        f"{str(path)!r} was not written, because Description('resnet20', num_classes=5) is another "
        f"network. The file holds gates, and none are asked for: pass gate, in a command --gate "
        f"NAME. The weights in {str(path)!r} do not fit ResNet: 45 unexpected (layer1.0."
    )
    # The same keys and shapes, but a sigmoid where the network has a tanh.
    tanh = Description("resnet20", 5, gate="asr:se", gate_options={"activation": "tanh"})
    network = made(tanh)
    message = refused(WeightsError, save, network, path, ASR)
    assert message.startswith(
        f"{str(path)!r} was not written, because Description('resnet20', num_classes=5, "
        f"gate='asr:se') is another network: with the same weights, its output differs by "
    )
    assert message.endswith(
        ", relative. Describe it as it was made; options of the gate are gate_options={...}."
    )
    assert list(tmp_path.iterdir()) == []
    assert torch.equal(answer(load(save(network, path, tanh))), answer(network))


SMALL_VIT = {"img_size": 32, "depth": 2, "embed_dim": 24, "num_heads": 2}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_differs_by_less_than_a_thousandth_is_another_network(tmp_path: Path, dtype) -> None:
    made_as = Description("timm:vit_tiny_patch16_224", 5, model_options=SMALL_VIT)
    by_tanh = replace(made_as, model_options={**SMALL_VIT, "act_layer": "gelu_tanh"})
    path = tmp_path / "w.safetensors"
    torch.manual_seed(0)
    network = made_as.build().to(dtype)
    assert "its output differs by" in refused(WeightsError, save, network, path, by_tanh)
    save(network, path, made_as)
    path.unlink()
    for module in network.modules():
        if isinstance(module, nn.LayerNorm):
            module.eps = 1e-5
    assert "its output differs by" in refused(WeightsError, save, network, path, made_as)
    assert not path.exists()


def test_what_is_too_large_for_float64_is_compared_in_its_own_precision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attnlab.networks.checkpoint.files._MOST_IN_DOUBLE", 0)
    network = made(Description("resnet20", 5, gate="asr:se", gate_options={"activation": "tanh"}))
    built = made(ASR)
    built.load_state_dict(network.state_dict())
    path, example = tmp_path / "w.safetensors", ASR.example(network)
    wanted = answer(network, example)
    change = float((answer(built, example) - wanted).abs().max() / wanted.abs().max())
    message = refused(WeightsError, save, network, path, ASR)
    assert f"its output differs by {change:.1e}, relative." in message
    for factor, kept in ((1 + 5e-4, True), (1 + 2e-3, False)):
        other = made(ASR)
        other.fc.register_forward_hook(lambda *given, factor=factor: factor * given[2])
        if kept:
            save(other, path, ASR)
        else:
            assert "its output differs by 2.0e-03" in refused(WeightsError, save, other, path, ASR)


def test_a_network_that_diverged_is_saved(tmp_path: Path) -> None:
    network = made(ASR)
    with torch.no_grad():
        network.fc.bias.fill_(float("nan"))
    assert load(save(network, tmp_path / "w.safetensors", ASR)).fc.bias.isnan().all()


def test_what_no_file_can_hold(tmp_path: Path) -> None:
    def late(site: Any) -> bool:
        return site.stage == 3

    description = Description("resnet20", gate="se", where=late)  # type: ignore[arg-type]
    path = tmp_path / "w.safetensors"
    message = refused(OptionError, save, description.build(), path, description)
    assert message.startswith("Description('resnet20', gate='se', where=<function ")
    assert message.endswith(
        "cannot be written to a file: Object of type function is not JSON serializable. Expected "
        "texts, numbers and lists of them; for `where`, name the modules: "
        "where=list(receipt.sites)."
    )
    assert refused(OptionError, save, made(ASR), tmp_path / "w.pt", ASR) == (
        f"Expected a path that ends in .safetensors but got {str(tmp_path / 'w.pt')!r}."
    )
    assert list(tmp_path.iterdir()) == []


def test_folds_come_back(tmp_path: Path) -> None:
    network = made(ASR)
    for options in ({}, {"fuse": True}):
        plain, receipt = attnlab.fold(network, **options)
        described = ASR.after_fold(plain, receipt)
        again = load(save(plain, tmp_path / "w.safetensors", described))
        assert torch.equal(answer(again), answer(plain))
        assert relative(answer(network), answer(again)) < 1e-5
    assert described == Description("resnet20", 5, gate="asr:se", kept=[], fused=True)


def test_a_fold_of_a_fold_comes_back(tmp_path: Path) -> None:
    """Of timm's nine gates the steadier half goes with the first fold, the rest with the second."""
    description = Description("timm:mobilenetv3_small_050", input_size=[3, 64, 64])
    torch.manual_seed(0)
    network = description.build().eval()
    loader = [torch.randn(4, 3, 64, 64) for _ in range(2)]
    _, receipt = attnlab.fold_constants(network, loader, tolerance=1e6)
    moves = [max(row.spread or 0, row.predicted_change or 0) for row in receipt.rows]
    some, receipt = attnlab.fold_constants(network, loader, tolerance=statistics.median(moves))
    then = description.after_fold(some, receipt)
    assert 0 < len(then.removed) < 9
    again = load(save(some, tmp_path / "some.safetensors", then))
    everything, receipt = attnlab.fold_constants(again, loader, tolerance=1e6)
    final = then.after_fold(everything, receipt)
    assert len(set(final.removed)) == 9
    read = load(save(everything, tmp_path / "all.safetensors", final))
    assert torch.equal(answer(read, loader[0]), answer(everything, loader[0]))


NORMS = """
from torch import nn

class Bare(nn.Module):
    input_size = (3, 8, 8)
    def __init__(self, num_classes=4, norm="batch"):
        super().__init__()
        norms = {
            "batch": nn.BatchNorm2d(8, affine=False),
            "group": nn.GroupNorm(2, 8, affine=False),
            "layer": nn.LayerNorm((8, 8, 8), elementwise_affine=False),
            "rms": nn.RMSNorm((8, 8, 8), elementwise_affine=False),
        }
        self.stem = nn.Conv2d(3, 8, 1)
        self.branch = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), norms[norm])
        self.head = nn.Linear(8, num_classes)
    def forward(self, x):
        x = self.stem(x)
        return self.head((x + self.branch(x)).mean((2, 3)))
"""


@pytest.fixture
def bare_norms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bare_norms.py").write_text(NORMS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "bare_norms", raising=False)


@pytest.mark.usefixtures("bare_norms")
@pytest.mark.parametrize("norm", ["batch", "group", "layer", "rms"])
def test_added_affine_parameters_come_back(norm: str, tmp_path: Path) -> None:
    description = Description("bare_norms.Bare", 5, {"norm": norm}, gate="asr:se")
    network = made(description)
    plain, receipt = attnlab.fold(network, add_affine=True)
    assert receipt.affine == ("branch.1",)
    path = save(plain, tmp_path / "w.safetensors", description.after_fold(plain, receipt))
    again = load(path, trust=True)
    images = IMAGES[:, :, :8, :8]
    assert torch.equal(answer(again, images), answer(plain, images))
    assert relative(answer(network, images), answer(again, images)) < 1e-5


@pytest.mark.usefixtures("bare_norms")
def test_added_affine_parameters_fuse(tmp_path: Path) -> None:
    description = Description("bare_norms.Bare", 5, gate="asr:se")
    plain, receipt = attnlab.fold(made(description), add_affine=True, fuse=True)
    described = description.after_fold(plain, receipt)
    again = load(save(plain, tmp_path / "w.safetensors", described), described)
    assert torch.equal(answer(again, IMAGES[:, :, :8, :8]), answer(plain, IMAGES[:, :, :8, :8]))


@pytest.mark.usefixtures("bare_norms")
def test_own_classes_need_trust(tmp_path: Path) -> None:
    description = Description("bare_norms.Bare")
    path = save(made(description), tmp_path / "w.safetensors", description)
    del sys.modules["bare_norms"]
    assert refused(WeightsError, load, path) == (
        f"{str(path)!r} names classes that are not attnlab's (bare_norms.Bare), and a file of "
        f"weights may not have code imported. If you trust them, pass trust=True, in a command "
        f"--trust."
    )
    assert "bare_norms" not in sys.modules
    assert type(load(path, trust=True)).__name__ == "Bare"
    assert type(load(path, description)).__name__ == "Bare"


def test_the_python_that_makes_a_description() -> None:
    for description in (
        Description("resnet20"),
        Description("resnet20", 5, {"a": 1}, "se", "stages:1", "identity", {"b": 2}, [3, 4, 5]),
        Description("resnet20", gate="asr:se", kept=[]),
        Description("resnet20", kept=["x"], removed=["y"], fused=True, affine=["z"]),
    ):
        assert eval(description.shown()) == description
    assert Description("resnet20", gate="asr:se", kept=[]).shown() == (
        "Description('resnet20', gate='asr:se', kept=[])"
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)."),
        ("[]", "expected a table but got []."),
        ("{}", "model: Field required."),
        ('{"model": 5}', "model: Input should be a valid string."),
        ('{"model": "resnet20", "num_classes": "5"}', "num_classes: Input should be a valid int"),
        ('{"model": "resnet20", "start": "end"}', "start: Input should be 'paper' or 'identity'."),
        (
            '{"model": "resnet20", "model_options": {"weights": "DEFAULT"}}',
            "Expected model_options to be options of what is built but got 'weights'. What has a "
            "field of its own goes there, and weights come from the file.",
        ),
    ],
)
def test_a_description_that_cannot_be_read(content: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_file({"x": torch.zeros(1)}, path, {"attnlab": content})
    message = refused(WeightsError, describe, path)
    first = f"The description of the network in {str(path)!r} cannot be read: "
    assert message.startswith(first + reason)
    assert refused(WeightsError, load, path) == message


def test_a_newer_description(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    about = {"attnlab": '{"model": "resnet20", "quantised": 8}'}
    save_file({"x": torch.zeros(1)}, path, about)
    assert refused(WeightsError, load, path) == (
        f"The description of the network in {str(path)!r} cannot be read: attnlab "
        f"{attnlab.__version__} does not know 'quantised', only model, num_classes, "
        f"model_options, gate, where, start, gate_options, input_size, kept, removed, fused, "
        f"affine, place, shared, noise, preprocessing, shortened, operators. A newer version wrote "
        f"it: update attnlab."
    )


def test_files_that_say_nothing(tmp_path: Path) -> None:
    for path in (tmp_path / "a.safetensors", tmp_path / "a.pt"):
        state = {"x": torch.zeros(1)}
        if path.suffix == ".pt":
            torch.save(state, path)
        else:
            save_file(state, path, {"format": "pt"})
        assert describe(path) is None
        assert refused(WeightsError, load, path) == (
            f"{str(path)!r} does not say which network it belongs to. Expected a file written by "
            f"attnlab.save, a run's folder, or a description of the network."
        )
    network = attnlab.create("resnet20").eval()
    torch.save(network.state_dict(), tmp_path / "b.pt")
    assert torch.equal(answer(load(tmp_path / "b.pt", Description("resnet20"))), answer(network))


def test_files_that_are_not_there_or_damaged(tmp_path: Path) -> None:
    path = tmp_path / "none.safetensors"
    for function in (load, describe):
        assert refused(WeightsError, function, path) == (
            f"There is no file of weights at {str(path)!r}."
        )
        assert refused(WeightsError, function, tmp_path) == (
            f"There is no {str(tmp_path / 'model.safetensors')!r}: the run is not finished, or "
            f"{str(tmp_path)!r} is not a run's folder."
        )
    save(made(ASR), path, ASR)
    for length in (0, 7, 1000, path.stat().st_size - 1):
        part = tmp_path / "part.safetensors"
        part.write_bytes(path.read_bytes()[:length])
        assert "is truncated, damaged or of another format" in refused(WeightsError, load, part)


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("opened a connection")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    for name in ("getaddrinfo", "create_connection"):
        monkeypatch.setattr(socket, name, refuse)


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("timm:resnet10t", {"weights": "pretrained"}),
        ("timm:resnet10t", {"pretrained": True}),
        ("timm:resnet10t", {"checkpoint_path": "/etc/hostname"}),
        ("torchvision:resnet18", {"weights": "DEFAULT"}),
        ("torchvision:resnet18", {"new_head": True, "weights": "DEFAULT"}),
        ("torchvision:lraspp_mobilenet_v3_large", {"weights_backbone": "DEFAULT"}),
        ("torchvision:lraspp_mobilenet_v3_large", {"pretrained_backbone": True}),
    ],
)
def test_a_file_fetches_and_reads_nothing_else(
    model: str, options: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "w.safetensors"
    content = json.dumps({"model": model, "model_options": options})
    save_file({"x": torch.zeros(1)}, path, {"attnlab": content})
    assert "Expected model_options to be options of what is built" in refused(
        WeightsError, load, path
    )
    assert without_weights({**options, "in_chans": 3}) == {"in_chans": 3}


def test_options_have_one_place() -> None:
    message = refused(OptionError, Description, "resnet20", model_options={"num_classes": 3})
    assert message == (
        "Expected model_options to be options of what is built but got 'num_classes'. What has a "
        "field of its own goes there, and weights come from the file."
    )
    message = refused(OptionError, Description, "resnet20", gate="se", gate_options={"where": 3})
    assert message.startswith("Expected gate_options to be options of what is built but got")


class TwoInputs(nn.Module):
    """No image is an input of it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return self.layer(one) + other


def test_of_a_network_with_other_inputs_names_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "two_inputs", sys.modules[__name__])
    description = Description("two_inputs.TwoInputs")
    network = TwoInputs()
    again = load(save(network, tmp_path / "w.safetensors", description), trust=True)
    one, other = torch.randn(2, 4, 3)
    assert torch.equal(again(one, other), network(one, other))
    changed = copy.deepcopy(network)
    changed.layer = nn.Linear(3, 4)
    assert "2 of another shape" in refused(
        WeightsError, save, changed, tmp_path / "x.safetensors", description
    )


def test_a_gate_that_would_be_refused_at_its_start_is_loaded(tmp_path):
    """A file may have one: with its values it is what it was trained to be."""
    options = {"img_size": 32, "depth": 2}
    described = Description(
        "timm:vit_tiny_patch16_224", 5, options, gate="asr:se*2", input_size=[3, 32, 32]
    )
    network = attnlab.create("timm:vit_tiny_patch16_224", 5, **options)
    with pytest.raises(OptionError, match="a product of 2"):
        attnlab.insert(network, "asr:se*2")
    gated = attnlab.insert(network, "asr:se*2", smallest=0.0)[0].eval()
    file = save(gated, tmp_path / "vit.safetensors", described)
    assert torch.equal(answer(load(file)), answer(gated))
