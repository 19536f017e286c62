"""Gates as tensors, against hooks on the gates' modules."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import attnlab
from attnlab._errors import InputError
from attnlab.instruments.stripe import gate_statistics, gate_values
from attnlab.instruments.stripe.measure import stripe
from attnlab.residuals.inputs import DifferentInputs
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
    assert found.values.keys() == expected.keys()
    for name, values in expected.items():
        if (values == values[:1]).all():  # a dead unit: the gate is a constant
            values = values[:1]
        torch.testing.assert_close(found.values[name], values, rtol=1e-5, atol=1e-6)
    for row, (name, values) in zip(gate_statistics(found), found.values.items(), strict=True):
        assert row.label == network.get_submodule(name).site.label
        assert row.mean == pytest.approx(values.mean().item())
        assert row.image_spread == pytest.approx(values.std(0, correction=0).mean().item())
        assert row.channel_spread == pytest.approx(values.mean(0).std(correction=0).item())


def test_a_constant_gate_has_one_row():
    found = gate_values(gated("asr:se"), IMAGES.split(5))
    assert {tuple(value.shape) for value in found.values.values()} == {(1, 16), (1, 32), (1, 64)}


def test_labels_are_those_of_the_steps():
    network = gated("se", where=["bn1", "layer2.1.bn1", "layer2.1.bn2", "layer3.0.bn2"])
    labels = {"attnlab_bn1": "bn1", "layer2.1.attnlab_bn1": "2.1"}
    labels |= {"layer2.1.attnlab_bn2": "2.1", "layer3.0.attnlab_bn2": "3.0"}
    found = gate_values(network, [IMAGES])
    rows = gate_statistics(found)
    assert {name: row.label for name, row in zip(found.values, rows, strict=True)} == labels
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
    with pytest.raises(InputError) as caught:
        gate_values(network, [IMAGES])
    assert str(caught.value) == (
        "The gate 'network.layer2.1.attnlab_bn2' acts 2 times in one forward, so it has no one "
        "value per image. Measure the network that calls it once."
    )
    with pytest.raises(InputError) as caught:
        stripe(network, [IMAGES])
    assert str(caught.value) == (
        "No gate of Twice runs once in one forward, so none has one value per image. "
        "network.layer2.1.attnlab_bn2 is left out: it runs 2 times in one forward."
    )


def test_no_batch():
    with pytest.raises(InputError) as caught:
        gate_values(gated("se"), [])
    assert str(caught.value) == "Expected at least one batch but got none."


@pytest.mark.parametrize(
    "network",
    [
        lambda: gated("iebn"),
        lambda: gated("se"),
        lambda: attnlab.create("timm:mobilenetv3_small_050", 10),
    ],
    ids=["in norms", "inserted", "of its own"],
)
def test_values_are_of_the_gates_that_stripe_sees(network):
    made = network().eval()
    sites = stripe(made, [IMAGES]).sites
    found = gate_values(made, [IMAGES])
    assert list(found.values) == [site.name for site in sites]
    assert len(sites) >= 9
    for row, site in zip(gate_statistics(found), sites, strict=True):
        assert row.label == site.label
        assert row.mean == pytest.approx(site.mean, rel=1e-5)
        assert row.image_spread == pytest.approx(site.image_spread, rel=1e-3, abs=1e-6)


FEW = {
    "one image": (IMAGES[:1], 1),
    "copies of one": (IMAGES[:1].repeat(20, 1, 1, 1), 1),
    "seven": (IMAGES[:7], 7),
    "seven, twice": (torch.cat([IMAGES[:7], IMAGES[:7]]), 7),
}


@pytest.mark.parametrize(("images", "different"), FEW.values(), ids=FEW)
@pytest.mark.parametrize("gate", ["se", "asr:se"])
def test_few_images_prove_nothing_about_constancy(gate, images, different):
    result = stripe(gated(gate), images.split(3))
    assert result.different == gate_values(gated(gate), images.split(3)).different == different
    assert not any(site.constant for site in result.sites)
    were = "image was" if different == 1 else "images were"
    few = (
        f"Only {different} different {were} seen: with fewer than 8 it cannot be said whether a "
        f"gate is the same for every image."
    )
    assert result.verdict == few
    assert few in result.notes


def test_eight_images_are_enough():
    result = stripe(gated("asr:se"), IMAGES[:8].split(3))
    assert result.different == 8
    assert all(site.constant for site in result.sites)
    assert result.notes == ()
    assert "different" not in result.verdict


def test_inputs_of_other_kinds_are_told_apart():
    seen = DifferentInputs(8)
    seen.see((), {"input_ids": torch.tensor([[1, 2], [1, 2], [2, 1]])})
    assert seen.number == 2
    seen = DifferentInputs(8)
    seen.see(([torch.zeros(3, 4, 4), torch.zeros(3, 2, 8), torch.ones(3, 4, 4)],), {})
    assert seen.number == 2  # equal to the bit, whatever their shape
    seen = DifferentInputs(8)
    seen.see((torch.randn(20, 3).bfloat16(),), {})
    assert seen.number == 8
