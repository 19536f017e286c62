"""Gates that depend on the input, replaced by their mean over data."""

from __future__ import annotations

import pytest
import timm
import torch
import torchvision
from torch import nn

import attnlab
from attnlab._errors import InputError
from attnlab.surgery.insertion import attachments

from .networks import Residual, relative, stir, stir_gates

C = 8


def batches(count: int = 3, size: int = 32, channels: int = 3) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(4, channels, size, size, generator=generator) for _ in range(count)]


def test_mean_and_spread_are_those_of_the_gate():
    """Against the gates themselves, image by image."""
    torch.manual_seed(0)
    network = stir(Residual(nn.Conv2d(C, C, 3, padding=1), nn.Identity(), C, 1)).double().eval()
    network, _ = attnlab.insert(network, "se", example=batches(1, 6, C)[0].double())
    ((_, attachment),) = attachments(network)
    data = [3 * batch.double() for batch in batches(3, 6, C)]
    with torch.no_grad():
        gates = torch.cat([attachment.gate(_branch(network, batch)) for batch in data])[:, :, 0, 0]
    plain, receipt = attnlab.fold_constants(network, data, tolerance=1.0)
    (row,) = receipt.rows
    mean = gates.mean(0)
    assert row.spread == pytest.approx(
        float((gates - mean).square().mean(0).sum().sqrt() / mean.norm()), rel=1e-9
    )
    expected = network.branch.weight * mean[:, None, None, None]
    assert relative(expected, plain.branch.weight) <= 1e-14
    with torch.no_grad():
        change = (plain(data[0]) - network(data[0])).norm() / network(data[0]).norm()
    assert row.predicted_change == pytest.approx(float(change), rel=1e-9)  # it is the only gate


def test_two_gates_in_one_place():
    """The means are over the data, each image once, and the larger change is told: against a
    network in which a hook puts one gate's mean in its place."""
    torch.manual_seed(0)
    network = stir(Residual(nn.Conv2d(C, C, 3, padding=1), nn.Identity(), C, 1)).double().eval()
    data = [3 * batch.double() for batch in batches(3, 6, C)]
    network = stir_gates(attnlab.insert(network, "se+ie", example=data[0])[0])
    means, changes, spreads = [], [], []
    for _, attachment in attachments(network):
        seen = []
        note = attachment.gate.register_forward_hook(lambda _, __, gate: seen.append(gate))  # noqa: B023
        with torch.no_grad():
            expected, *_ = [network(batch) for batch in data]
        note.remove()
        means.append(torch.cat(seen).mean(0, keepdim=True))
        deviations = (torch.cat(seen) - means[-1]).square().mean(0).sum().sqrt()
        spreads.append(float(deviations / means[-1].norm()))
        put = attachment.gate.register_forward_hook(lambda _, __, ___: means[-1])
        with torch.no_grad():
            changes.append(float((network(data[0]) - expected).norm() / expected.norm()))
        put.remove()
    plain, receipt = attnlab.fold_constants(network, data, tolerance=1.0)
    assert abs(changes[0] - changes[1]) > 0.01 * max(changes)
    assert receipt.rows[0].predicted_change == pytest.approx(max(changes), rel=1e-9)
    assert abs(spreads[0] - spreads[1]) > 0.01 * max(spreads)
    assert receipt.rows[0].spread == pytest.approx(max(spreads), rel=1e-9)
    product = (means[0] * means[1]).reshape(-1, 1, 1, 1)
    assert relative(network.branch.weight * product, plain.branch.weight) <= 1e-14


def test_of_two_gates_in_one_place_the_larger_spread_is_told():
    torch.manual_seed(0)
    network = stir(Residual(nn.Conv2d(C, C, 3, padding=1), nn.Identity(), C, 1)).double().eval()
    images = 3 * torch.randn(32, C, 6, 6, generator=torch.Generator().manual_seed(0)).double()
    network = stir_gates(attnlab.insert(network, "se+ie", example=images)[0])
    seen = {}
    for name, attachment in attachments(network):
        attachment.gate.register_forward_hook(
            lambda _, __, gate, name=name: seen.__setitem__(name, gate.flatten(1))
        )
    with torch.no_grad():
        network(images[::2])  # on the others it is judged
    spreads = [
        float((gate - gate.mean(0)).square().mean(0).sum().sqrt() / gate.mean(0).norm())
        for gate in seen.values()
    ]
    _, receipt = attnlab.fold_budget(network, [images], "all")
    assert max(spreads) > 1.05 * min(spreads)
    assert receipt.rows[0].spread == pytest.approx(max(spreads), rel=1e-9)


def _branch(network: nn.Module, images: torch.Tensor) -> torch.Tensor:
    return nn.functional.conv2d(images, network.branch.weight, network.branch.bias, padding=1)


OWN = {
    # name: (build, gates, folded into the input channels of the next convolution)
    "efficientnet": (lambda: timm.create_model("efficientnet_b0", num_classes=3), 16, 16),
    "mobilenetv3": (lambda: timm.create_model("mobilenetv3_small_050", num_classes=3), 9, 8),
    "seresnet": (lambda: timm.create_model("seresnet18", num_classes=3), 8, 0),
    "regnety": (lambda: timm.create_model("regnety_002", num_classes=3), 13, 0),
    "effective se": (lambda: timm.create_model("ese_vovnet19b_dw", num_classes=3), 4, 0),
    "torchvision": (lambda: torchvision.models.mobilenet_v3_small(num_classes=3), 9, 8),
}


@pytest.mark.parametrize("kind", OWN)
def test_attention_of_the_network_itself(kind):
    build, count, behind = OWN[kind]
    torch.manual_seed(0)
    network = stir(build()).eval()
    data = batches(2)
    plain, receipt = attnlab.fold_constants(network, data, tolerance=1.0)
    assert len(receipt.rows) == count
    assert not receipt.kept
    assert sum(len(row.into) == 1 for row in receipt.rows) == behind
    # Once constant, the fold is exact; what remains is the constancy.
    assert receipt.float64_change <= 1e-12
    assert all(row.error <= 1e-12 for row in receipt.rows)
    with torch.no_grad():
        assert relative(network(data[0]), plain(data[0])) == pytest.approx(
            receipt.relative_change, rel=1e-3
        )
    names = ("SEModule", "SqueezeExcite", "SqueezeExcitation", "EffectiveSEModule")
    assert not any(type(module).__name__ in names for module in plain.modules())
    assert receipt.parameters_added < 0


def test_constant_gates_are_folded_without_error():
    """The gate of every image is the same, so that replacing it by the mean changes nothing."""
    torch.manual_seed(0)
    network = stir(timm.create_model("mobilenetv3_small_050", num_classes=3)).eval().double()
    for name, module in network.named_modules():
        if name.endswith("conv_reduce"):
            nn.init.zeros_(module.weight)
    data = [batch.double() for batch in batches(2)]
    plain, receipt = attnlab.fold_constants(network, data, tolerance=1e-9)
    assert len(receipt.sites) == 9
    assert max(row.spread for row in receipt.rows) <= 1e-7
    with torch.no_grad():
        assert relative(network(data[0]), plain(data[0])) <= 1e-12


class Less(nn.Module):
    """What is left of the answers when most of those to some images is taken away."""

    def __init__(self, network: nn.Module, images: torch.Tensor) -> None:
        super().__init__()
        self.network = network
        with torch.no_grad():
            self.register_buffer("most", 0.999 * network(images))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.network(x) - self.most


def test_a_change_above_the_tolerance_keeps_the_gate():
    """Its spread may be small all the same."""
    torch.manual_seed(0)
    network = Residual(nn.Conv2d(C, C, 3, padding=1), nn.Identity(), C, 1).double().eval()
    data = [3 * batch.double() for batch in batches(3, 6, C)]
    network = Less(attnlab.insert(network, "se", example=data[0])[0], data[0])
    _, receipt = attnlab.fold_constants(network, data, tolerance=99.0)
    (row,) = receipt.rows
    assert row.predicted_change > 10 * row.spread
    for tolerance, kept in (
        (row.predicted_change * 1.001, ""),
        (
            row.predicted_change * 0.999,
            f"its mean would change the output by {row.predicted_change:.2g}, more than "
            f"{row.predicted_change * 0.999:g}",
        ),
        (
            row.spread * 0.999,
            f"its gate varies by {row.spread:.2g} over the data, more than {row.spread * 0.999:g}",
        ),
    ):
        _, receipt = attnlab.fold_constants(network, data, tolerance=tolerance)
        assert receipt.rows[0].kept == kept


def test_tolerance_keeps_gates_that_vary():
    torch.manual_seed(0)
    network = stir(attnlab.create("resnet20")).eval()
    network, _ = attnlab.insert(network, "se")
    _, receipt = attnlab.fold_constants(network, batches(), tolerance=1.0)
    *_, second, largest = sorted(row.spread for row in receipt.rows)
    tolerance = (second + largest) / 2
    rest, receipt = attnlab.fold_constants(network, batches(), tolerance=tolerance)
    (row,) = receipt.kept
    assert row.spread == largest
    assert row.kept == (
        f"its gate varies by {row.spread:.2g} over the data, more than {tolerance:g}"
    )
    ((_, attachment),) = attachments(rest)
    assert attachment.site.module == row.site


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("cbam", "its gate differs from pixel to pixel"),
        ("dia", "its gate depends on the input"),
    ],
)
def test_gates_that_have_no_constant(spec, reason):
    network, _ = attnlab.insert(attnlab.create("resnet20"), spec)
    rest, receipt = attnlab.fold_constants(network.eval(), batches(1), tolerance=1.0)
    assert {row.kept for row in receipt.rows} == {reason}
    assert relative(network(batches(1)[0]), rest(batches(1)[0])) == 0.0


@pytest.mark.parametrize("spec", ["eca", "srm", "ie", "sem", "step", "asr:se+se"])
def test_other_inserted_gates(spec):
    torch.manual_seed(0)
    network, inserted = attnlab.insert(stir(attnlab.create("resnet20")), spec)
    plain, receipt = attnlab.fold_constants(network.eval(), batches(), tolerance=1.0)
    assert len(receipt.sites) == len(inserted.sites)
    assert list(plain.state_dict()) == list(attnlab.create("resnet20").state_dict())
    assert receipt.float64_change <= 1e-12


def test_batches_with_targets():
    network, _ = attnlab.insert(attnlab.create("resnet20"), "se")
    data = [(batch, torch.zeros(4)) for batch in batches(2)]
    _, receipt = attnlab.fold_constants(network.eval(), data, tolerance=1.0)
    assert len(receipt.sites) == 9


def test_an_image_that_is_not_finite():
    network, _ = attnlab.insert(attnlab.create("resnet20"), "se")
    data = list(batches(2))
    data[1][0, 0, 0, 0] = float("nan")
    with pytest.raises(InputError) as raised:
        attnlab.fold_constants(network.eval(), data, tolerance=1.0)
    assert str(raised.value) == (
        "Batch 1 of the images has values that are not finite. Expected images as the network "
        "takes them."
    )


def test_bad_data():
    network, _ = attnlab.insert(attnlab.create("resnet20"), "se")
    with pytest.raises(InputError) as raised:
        attnlab.fold_constants(network, [])
    assert str(raised.value) == "The images gave no batch. Expected an iterable of input batches."
    with pytest.raises(InputError) as raised:
        attnlab.fold_constants(network, ["images"])
    assert str(raised.value) == (
        "Expected batches that are a tensor, start with one or with a list of images, or are a "
        "dictionary of inputs but got "
        "str."
    )


class BySize(nn.Module):
    """Only large images come to the attention."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.attention = nn.Conv2d(3, C, 1), timm.layers.SEModule(C, rd_channels=2)
        self.head = nn.Linear(C, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.before(x)
        if x.shape[-1] > 8:
            x = self.attention(x)
        return self.head(x.mean((2, 3)))


def test_a_gate_that_the_data_do_not_reach():
    torch.manual_seed(0)
    network, large = BySize().eval(), batches(1, 12)[0]
    for fold in (
        lambda: attnlab.fold_constants(network, batches(1, 6), tolerance=9.0, example=large),
        lambda: attnlab.fold_budget(network, batches(8, 6), "all", example=large),
    ):
        _, receipt = fold()
        assert [row.kept for row in receipt.rows] == ["the data do not reach it"]
        assert receipt.sites == ()
