"""Gates as tensors, against hooks on the gates' modules."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import attnlab
from attnlab._errors import InputError, StepsNotFoundError
from attnlab.instruments.stripe import gate_means, gate_values
from attnlab.instruments.stripe.measure import stripe
from attnlab.surgery.insertion import attachments

IMAGES = torch.randn(12, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def gated(gate: str, **options) -> nn.Module:
    torch.manual_seed(0)
    return attnlab.insert(attnlab.create("resnet20", 10), gate, **options)[0]


@pytest.mark.parametrize("where", [None, "norms", ["layer2.1.bn2", "layer1.0.bn1"]])
@pytest.mark.parametrize("gate", ["se", "cbam"])
def test_values_are_those_of_the_gates(gate, where):
    network = gated(gate, where=where).train()
    seen: dict[str, torch.Tensor] = {}
    for name, attachment in attachments(network):
        attachment.gate.register_forward_hook(
            lambda _m, _a, out, name=name: seen.__setitem__(name, out.mean((2, 3)))
        )
    network.eval()
    with torch.no_grad():
        network(IMAGES)
    expected = dict(seen)
    network.train()
    found = gate_values(network, [(images, torch.zeros(4)) for images in IMAGES.split(4)])
    assert network.training
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        if (values == values[:1]).all():  # a dead unit: the gate is a constant
            values = values[:1]
        torch.testing.assert_close(found[name], values, rtol=1e-5, atol=1e-6)
    sites = {site.name: site for site in stripe(network, [IMAGES]).sites}
    means = gate_means(network, IMAGES.split(5))
    for name, values in found.items():
        site = sites[name]
        assert site.label == network.get_submodule(name).site.label
        assert site.mean == pytest.approx(values.mean().item())
        torch.testing.assert_close(means[name].float(), values.mean(0))


def test_a_constant_gate_has_one_row():
    found = gate_values(gated("asr:se"), IMAGES.split(5))
    assert {tuple(value.shape) for value in found.values()} == {(1, 16), (1, 32), (1, 64)}


def test_labels_are_those_of_the_steps():
    network = gated("se", where=["bn1", "layer2.1.bn1", "layer2.1.bn2", "layer3.0.bn2"])
    labels = {"attnlab_bn1": "bn1", "layer2.1.attnlab_bn1": "2.1"}
    labels |= {"layer2.1.attnlab_bn2": "2.1", "layer3.0.attnlab_bn2": "3.0"}
    assert gate_values(network, [IMAGES]).keys() == labels.keys()
    assert {site.name: site.label for site in stripe(network, [IMAGES]).sites} == labels
    norms = stripe(gated("iebn", where=["layer2.1.bn1"]), [IMAGES])
    assert [(site.label, site.kind) for site in norms.sites] == [("2.1", "norm")]


class Twice(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images):
        return self.network(images) + self.network(2 * images)


def test_a_gate_that_runs_twice_is_refused_by_name():
    network = Twice(gated("se", where=["layer2.1.bn2"]))
    for look in (gate_values, gate_means, stripe):
        with pytest.raises(StepsNotFoundError) as caught:
            look(network, [IMAGES])
        assert str(caught.value) == (
            "No gate of Twice runs once in one forward, so none has one value per image. "
            "network.layer2.1.attnlab_bn2 is left out: it runs 2 times in one forward."
        )


def test_gates_inside_norms_have_values():
    network = gated("iebn", where=["layer2.1.bn1"])
    (name,) = gate_values(network, [IMAGES])
    assert name == "layer2.1.bn1"


def test_no_batch():
    with pytest.raises(InputError) as caught:
        gate_values(gated("se"), [])
    assert str(caught.value) == "Expected a loader with at least one batch but got an empty one."
