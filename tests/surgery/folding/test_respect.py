"""What folding must leave as it was."""

from __future__ import annotations

import copy
import io

import pytest
import timm
import torch
from torch import nn

import attnlab
from attnlab.residuals.example import measure
from attnlab.surgery.double import Absent, double_copy
from attnlab.surgery.insertion import attachments

from .networks import relative, stir, stir_gates

IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def gated(name: str = "resnet20", spec: str = "asr:se", **options: object) -> nn.Module:
    torch.manual_seed(0)
    return stir_gates(attnlab.insert(stir(attnlab.create(name)), spec, **options)[0])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_precision_and_one_rounding(dtype):
    network = gated().to(dtype)
    plain, _ = attnlab.fold(network)
    exact, _ = attnlab.fold(copy.deepcopy(network).double())
    for name, value in plain.state_dict().items():
        assert value.dtype == (torch.int64 if name.endswith("tracked") else dtype)
        # The gate and the product in float64, rounded once.
        assert torch.equal(value, exact.state_dict()[name].to(value.dtype))


def test_modules_modes_gradients_and_buffers():
    network = gated().train()
    network.layer2.eval()
    for parameter in network.layer1.parameters():
        parameter.requires_grad_(False)
    before = copy.deepcopy(network.state_dict())
    flags = {name: p.requires_grad for name, p in network.named_parameters()}
    plain, _ = attnlab.fold(network)
    original = attnlab.create("resnet20")
    assert list(plain.state_dict()) == list(original.state_dict())
    assert [type(m) for m in plain.modules()] == [type(m) for m in original.modules()]
    for name, parameter in plain.named_parameters():
        assert parameter.requires_grad == flags[name]
        assert parameter.is_leaf
        assert parameter.grad is None
    for name, buffer in plain.named_buffers():
        assert torch.equal(buffer, before[name])
    for name, module in plain.named_modules():
        assert module.training == network.get_submodule(name).training
    assert plain.bn1.momentum == network.bn1.momentum
    # and the gated network is as it was
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_memory_format():
    network = attnlab.insert(attnlab.create("mobilenet_v1"), "asr:se")[0]
    network = network.to(memory_format=torch.channels_last)
    plain, _ = attnlab.fold(network)
    for parameter in plain.parameters():
        if parameter.dim() == 4:
            assert parameter.is_contiguous(memory_format=torch.channels_last)


def test_in_place():
    network = gated()
    expected, _ = attnlab.fold(network)
    parameter = network.layer1[0].bn2.weight
    same, _ = attnlab.fold(network, inplace=True)
    assert same is network
    assert network.layer1[0].bn2.weight is parameter  # what an optimizer holds stays
    assert not list(attachments(network))
    for name, value in expected.state_dict().items():
        assert torch.equal(value, network.state_dict()[name])


def test_nothing_of_attnlab_is_left():
    import timm

    network = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=2, num_classes=3)
    images = torch.randn(1, 3, 32, 32)
    with_gates = stir_gates(attnlab.insert(network, "asr:se", example=images)[0])
    plain, _ = attnlab.fold(with_gates, example=images)
    for module in plain.modules():
        assert not type(module).__module__.startswith("attnlab")
        assert not module._forward_hooks
        assert not any("attnlab" in name for name in module.__dict__)
    # A file of the whole network can be read where attnlab is not installed.
    content = io.BytesIO()
    torch.save(plain, content)
    assert b"attnlab" not in content.getvalue()


def test_additions_and_their_classes_are_restored():
    torch.manual_seed(0)
    network = attnlab.create("torchvision:resnet18", num_classes=3)
    images = torch.randn(1, 3, 64, 64)
    network = stir(network)
    gates, _ = attnlab.insert(network, "asr:se", example=images)
    hosted = {a.site.host for _, a in attachments(gates)}
    plain, _ = attnlab.fold(stir_gates(gates).double(), example=images.double())
    assert hosted <= {"output", "addition"}
    assert [type(m) for m in plain.modules()] == [type(m) for m in network.modules()]


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        *(("resnet20", f"asr:{inner}") for inner in ("se*3", "ie", "srm", "spa", "eca")),
        *((name, "asr:ie") for name in ("repvgg_a0", "shufflenet_v2")),
    ],
)
def test_own_networks(name, spec):
    network = gated(name, spec).eval().double()
    plain, receipt = attnlab.fold(network)
    with torch.no_grad():
        assert relative(network(IMAGES.double()), plain(IMAGES.double())) <= 1e-12
    attnlab.create(name).load_state_dict(plain.state_dict(), strict=True)
    assert receipt.parameters_after == sum(p.numel() for p in attnlab.create(name).parameters())


def test_start_identity_folds_to_the_original():
    """The scale that makes a new gate the identity is part of the gate."""
    torch.manual_seed(0)
    network = stir(attnlab.create("resnet20")).eval()
    gates, _ = attnlab.insert(network, "asr:se", start="identity")
    plain, _ = attnlab.fold(gates)
    for name, value in network.state_dict().items():
        torch.testing.assert_close(plain.state_dict()[name], value, rtol=1e-6, atol=0)


def test_published_counts():
    """ASR(SE) on ResNet164: what the paper trains, and what it deploys."""
    network, _ = attnlab.insert(attnlab.create("resnet164", num_classes=100), "asr:se")
    _, receipt = attnlab.fold(network)
    assert (receipt.parameters_before, receipt.parameters_after) == (1_937_452, 1_727_284)
    assert len(receipt.rows) == 54


def test_receipt():
    network = gated()
    _, receipt = attnlab.fold(network)
    lines = str(receipt).splitlines()
    assert lines[0] == "folded 9 gates of ResNet"
    assert lines[2] == "  parameters  275,183 → 272,474 (-2,709)"
    assert receipt.rows[0].into == ("layer1.0.bn2.weight", "layer1.0.bn2.bias")
    site, into, gate, error = receipt.table().texts()[0]
    assert (site, into) == ("layer1.0.bn2", "layer1.0.bn2.weight, layer1.0.bn2.bias")
    assert gate.startswith("0.")
    assert float(error) < 1e-10


def test_gates_of_two_insertions_at_one_site():
    torch.manual_seed(0)
    network, _ = attnlab.insert(stir(attnlab.create("resnet20")), "asr:se")
    network, _ = attnlab.insert(network, "asr:ie", where="stages:1,2")
    network = stir_gates(network).double().eval()
    plain, receipt = attnlab.fold(network)
    assert receipt.action == "folded 15 gates of ResNet"
    assert list(plain.state_dict()) == list(attnlab.create("resnet20").state_dict())
    assert relative(network(IMAGES.double()), plain(IMAGES.double())) <= 1e-12
    block, before = network.layer1[0], attnlab.create("resnet20")
    before.load_state_dict({k: v for k, v in network.state_dict().items() if "attnlab" not in k})
    vector = block.attnlab.gate.constant() * block.attnlab_b.gate.constant()
    expected = before.double().layer1[0].bn2.weight * vector
    assert relative(expected, plain.layer1[0].bn2.weight) <= 1e-14


class Activated(nn.Module):
    """Nothing before the gate can take it: after it, `last` can."""

    input_size = (3, 32, 32)

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.first = nn.Conv2d(3, 6, 1), nn.Conv2d(6, 6, 3, padding=1)
        self.act, self.last = nn.SiLU(), nn.Conv2d(6, 6, 1)

    def forward(self, x):
        x = self.stem(x)
        return x + self.last(self.act(self.first(x)))


def test_a_gate_inside_a_branch_goes_on_to_the_layer_behind_it():
    network, _ = attnlab.insert(Activated(), "asr:se", where=["act"])
    ((_, attachment),) = attachments(network)
    assert attachment.site.position == "inside"
    network = stir_gates(network).double().eval()
    plain, receipt = attnlab.fold(network)
    assert receipt.rows[0].into == ("last.weight",)
    assert relative(network(IMAGES.double()), plain(IMAGES.double())) <= 1e-12


@pytest.mark.parametrize("registered", [False, True])
def test_a_gate_that_is_kept_elsewhere_too_is_copied_whole(registered):
    """A copy that will be without its gates has stand-ins for them, which nobody else may get."""
    network, _ = attnlab.insert(attnlab.create("resnet20"), "asr:se")
    gate = next(each for _, each in attachments(network)).gate
    if registered:
        network.watched = gate
    else:
        network.watched = [gate]
    folded, _ = attnlab.fold(network)
    found = folded.watched if registered else folded.watched[0]
    assert type(found) is type(gate)
    assert found is not gate
    for (name, mine), (_, other) in zip(
        found.named_parameters(), gate.named_parameters(), strict=True
    ):
        assert torch.equal(mine, other), name
        assert mine.data_ptr() != other.data_ptr()


@pytest.mark.parametrize(
    ("build", "gate"),
    [
        (lambda: attnlab.create("resnet20"), "asr:se"),
        (lambda: attnlab.create("resnet20"), "asr:se*2+rezero"),
        (lambda: timm.create_model("vit_tiny_patch16_224", depth=2, img_size=32), "asr:se"),
    ],
)
def test_the_receipt_counts_what_runs(build, gate):
    """Without counting again: what is left is what there was without the gates."""
    network, inserted = attnlab.insert(build(), gate)
    plain, receipt = attnlab.fold(network)
    assert receipt.macs_before == inserted.macs_after == measure(network)[1]
    assert receipt.macs_after == inserted.macs_before == measure(plain)[1]


def test_gates_that_go_are_not_copied():
    network = gated()
    gates = [each.gate for _, each in attachments(network)]
    copied = double_copy(network, gates)
    assert {type(each.gate) for _, each in attachments(copied)} == {Absent}
    assert {type(each.gate) for _, each in attachments(double_copy(network))} == {type(gates[0])}
    assert len({id(gate) for gate in gates} & {id(m) for m in copied.modules()}) == 0
