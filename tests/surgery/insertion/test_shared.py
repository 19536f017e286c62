"""One gate for all chosen blocks of a stage."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

import attnlab
from attnlab._errors import OptionError, WeightsError
from attnlab.networks.checkpoint import Description
from attnlab.surgery.insertion import attachments, remove_attachments

EAN_SGE = "code:1001011010011011"
"""The scheme that EAN's authors publish for SGE on ResNet-50."""


def parameters(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


def small(gate: str = "se", where: str | None = None, **options: object) -> nn.Module:
    torch.manual_seed(0)
    plain = attnlab.create("resnet20")
    return attnlab.insert(plain, gate, where, shared=True, **options)[0].eval()


def images(number: int = 2) -> torch.Tensor:
    return torch.randn(number, 3, 32, 32, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("shared", "added"), [(True, 512), (False, 1152)])
def test_parameters_of_ean_s_searched_scheme(shared: bool, added: int) -> None:
    """SGE has 2 · 64 parameters: nine gates, or one in each of four stages."""
    with torch.device("meta"):
        network = attnlab.create("torchvision:resnet50")
    gated, receipt = attnlab.insert(network, "sge", EAN_SGE, shared=shared)
    assert receipt.parameters_added == added
    assert len(receipt.sites) == len(list(attachments(gated))) == 9
    note = "4 sge gates act at 9 sites: one per stage (shared=True)"
    assert (note in receipt.notes) == shared


@pytest.mark.parametrize("gate", ["se", "step", "asr:se"])
def test_it_is_the_unshared_network_with_equal_gates(gate: str) -> None:
    """Reference: gates of their own, every one given the weights of its stage's."""
    shared = small(gate)
    owners = {a.site.stage: a.gate_module for _, a in attachments(shared)}
    assert len({id(a.gate_module) for _, a in attachments(shared)}) == 3
    torch.manual_seed(0)
    reference = attnlab.insert(attnlab.create("resnet20"), gate)[0].eval()
    for _, attachment in attachments(reference):
        attachment.gate_module.load_state_dict(owners[attachment.site.stage].state_dict())
    assert torch.equal(shared(images()), reference(images()))
    own = parameters(reference) - parameters(attnlab.create("resnet20"))
    one_of_each = sum(parameters(module) for module in owners.values())
    assert own > one_of_each == parameters(shared) - parameters(attnlab.create("resnet20"))


def test_gradients_of_all_blocks_come_together() -> None:
    shared = small("se", "stages:1")
    gates = [a for _, a in attachments(shared)]
    shared(images()).square().sum().backward()
    torch.manual_seed(0)
    reference = attnlab.insert(attnlab.create("resnet20"), "se", "stages:1")[0].eval()
    for _, attachment in attachments(reference):
        attachment.gate_module.load_state_dict(gates[0].gate_module.state_dict())
    reference(images()).square().sum().backward()
    for name, parameter in gates[0].gate_module.named_parameters():
        parts = [dict(a.gate_module.named_parameters())[name] for _, a in attachments(reference)]
        expected = sum(part.grad for part in parts if part.grad is not None)
        torch.testing.assert_close(parameter.grad, expected, rtol=1e-4, atol=1e-4)


def test_identity_start_leaves_the_output() -> None:
    torch.manual_seed(0)
    plain = attnlab.create("resnet20").eval()
    torch.testing.assert_close(small("se", start="identity")(images()), plain(images()))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda n: pickle.loads(pickle.dumps(n))])
def test_copies_share_among_themselves_only(copied: object) -> None:
    network = small()
    other = copied(network)  # type: ignore[operator]
    with torch.no_grad():
        for _, attachment in attachments(other):
            for parameter in attachment.gate_module.parameters():
                parameter.zero_()
    assert len({id(a.gate_module) for _, a in attachments(other)}) == 3
    assert not torch.equal(other(images()), network(images()))
    assert not any(not p.any() for _, a in attachments(network) for p in a.gate_module.parameters())


def test_a_gate_that_a_tool_exchanged_is_exchanged_everywhere() -> None:
    """Quantisers and the like set attributes; blocks that share must not go on with the old one."""
    network = small("se", "stages:1")
    gates = [a for _, a in attachments(network)]
    new = copy.deepcopy(gates[0].gate_module)
    nn.init.constant_(new.get_parameter("excitation.fc2.bias"), 5.0)
    gates[0].gate = new
    assert all(a.gate_module is new for a in gates)
    seen = [a.step_size(torch.randn(2, 16, 8, 8), None) for a in gates]
    assert all(bool((value > 0.9).all()) for value in seen)


def test_files(tmp_path) -> None:
    network = small("se", "random:2@3")
    description = Description("resnet20", gate="se", where="random:2@3", place="auto", shared=True)
    file = attnlab.save(network, tmp_path / "shared.safetensors", description)
    assert torch.equal(attnlab.load(file)(images()), network(images()))
    keys = [key for key in network.state_dict() if "attnlab" in key]
    assert len(keys) == 3 * 4  # one gate of two layers in each of three stages
    unshared = Description("resnet20", gate="se", where="random:2@3", place="auto")
    with pytest.raises(WeightsError):
        attnlab.save(network, tmp_path / "wrong.safetensors", unshared)
    with pytest.raises(RuntimeError, match="Missing key"):
        unshared.build().load_state_dict(network.state_dict())


def test_the_gates_can_be_watched_each_at_its_place() -> None:
    network = small("se", "blocks:0,2,5")
    found = attnlab.stripe(network, [images(4)])
    assert [site.label for site in found.sites] == ["1.0", "1.2", "2.2"]
    measured = attnlab.stiffness(network, [images(4)], convention="paper")
    assert [step.label for step in measured.nsi if step.gated] == ["1.0", "1.2", "2.2"]


def test_a_shared_constant_gate_folds() -> None:
    network = small("asr:se")
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    plain, receipt = attnlab.fold(network)
    assert receipt.float64_change is not None
    assert receipt.float64_change <= 1e-12
    assert plain.state_dict().keys() == attnlab.create("resnet20").state_dict().keys()
    torch.testing.assert_close(plain(images()), network(images()), rtol=1e-4, atol=1e-4)


def test_who_owns_the_gate_may_go() -> None:
    network = small("se", "stages:1,2")
    names = [name for name, _ in attachments(network)]
    values = {name: a.gate_module.state_dict() for name, a in attachments(network)}
    remove_attachments(network, keep=names[1:])
    left = dict(attachments(network))
    assert list(left) == names[1:]
    assert left[names[1]].gate_module is left[names[2]].gate_module
    stored = network.state_dict()
    for key, value in values[names[0]].items():
        assert torch.equal(stored[f"{names[1]}.gate.{key}"], value)
    assert {key.split(".gate.")[0] for key in stored if ".gate." in key} == {names[1], names[3]}
    assert parameters(network) == parameters(attnlab.create("resnet20")) + sum(
        parameters(left[name].gate_module) for name in (names[1], names[3])
    )


@pytest.mark.parametrize(
    ("gate", "where", "message"),
    [
        ("dia", None, "'dia' is one gate per stage already. Leave shared=True out."),
        (
            "iebn",
            None,
            "'iebn' acts inside norms, each with statistics of its own, so shared=True is not for "
            "it. Leave it out, or choose 'ie'.",
        ),
        (
            "se",
            ["layer1.0.bn2"],
            "shared=True is one gate for the chosen blocks of a stage, and here modules are named. "
            "Choose blocks, for example where='blocks:0,3'.",
        ),
    ],
)
def test_what_cannot_be_shared(gate: str, where: object, message: str) -> None:
    with torch.device("meta"):
        network = attnlab.create("resnet20")
    with pytest.raises(OptionError) as caught:
        attnlab.insert(network, gate, where, shared=True)  # type: ignore[arg-type]
    assert str(caught.value) == message
