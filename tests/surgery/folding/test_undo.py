"""Other readers of a scaled tensor undo the scaling: by the closed form, in both modes."""

from __future__ import annotations

import pytest
import timm
import torch
from torch import Tensor, nn

import attnlab
from attnlab._errors import FoldError
from attnlab.surgery.insertion import attachments

from .networks import Residual, in_both_modes, relative, stir, stir_gates

C = 8
IMAGES = torch.randn(4, C, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


class Excited(nn.Module):
    """Squeeze-and-excitation at the end of the branch reads what the gate after it scales."""

    def __init__(self, between: nn.Module) -> None:
        super().__init__()
        self.conv, self.norm, self.between = nn.Conv2d(C, C, 1), nn.BatchNorm2d(C), between
        self.squeeze, self.excite = nn.Conv2d(C, 4, 1), nn.Conv2d(4, C, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.between(self.norm(self.conv(x)))
        squeezed = torch.relu(self.squeeze(x.mean((2, 3), keepdim=True)))
        return x * torch.sigmoid(self.excite(squeezed))


class Ghost(nn.Module):
    """One half of the branch is computed from the other by a depthwise convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(C, C // 2, 1), nn.BatchNorm2d(C // 2)
        self.cheap = nn.Conv2d(C // 2, C // 2, 3, padding=1, groups=C // 2)
        self.cheap_norm = nn.BatchNorm2d(C // 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.conv(x))
        return torch.cat((x, self.cheap_norm(self.cheap(x))), 1)


def gated(branch: nn.Module, **options: object) -> nn.Module:
    torch.manual_seed(0)
    network = stir(Residual(branch, nn.Identity(), C, axis=1)).double()
    network, _ = attnlab.insert(network, "asr:se", example=IMAGES, place="branch", **options)
    return stir_gates(network)


def the_gate(network: nn.Module) -> Tensor:
    ((_, attachment),) = attachments(network)
    return attachment.gate.constant()


@pytest.mark.parametrize("between", [nn.Identity(), nn.ReLU()], ids=["norm", "norm, relu"])
def test_squeeze_and_excitation(between):
    network = gated(Excited(between))
    folded, receipt = attnlab.fold(network, example=IMAGES)
    gate, before, after = the_gate(network), network.branch, folded.branch
    torch.testing.assert_close(after.norm.weight, before.norm.weight * gate)
    torch.testing.assert_close(after.norm.bias, before.norm.bias * gate)
    torch.testing.assert_close(
        after.squeeze.weight, before.squeeze.weight / gate[None, :, None, None]
    )
    for name in ("conv.weight", "conv.bias", "squeeze.bias", "excite.weight", "excite.bias"):
        assert torch.equal(after.get_parameter(name), before.get_parameter(name))
    for expected, found in zip(
        in_both_modes(network, IMAGES), in_both_modes(folded, IMAGES), strict=True
    ):
        assert relative(expected, found) <= 1e-12
    (row,) = receipt.rows
    assert row.into == ("branch.norm.weight", "branch.norm.bias")
    assert row.undone_by == ("branch.squeeze.weight",)
    shown = receipt.table().to_markdown()
    assert "branch.norm.weight, branch.norm.bias, 1/gate: branch.squeeze.weight" in shown
    assert type(receipt).from_json(receipt.to_json()) == receipt


def test_ghost():
    network = gated(Ghost())
    folded, receipt = attnlab.fold(network, example=IMAGES)
    gate, before, after = the_gate(network), network.branch, folded.branch
    first, second = gate.chunk(2)
    torch.testing.assert_close(after.norm.weight, before.norm.weight * first)
    torch.testing.assert_close(after.cheap.weight, before.cheap.weight / first[:, None, None, None])
    assert torch.equal(after.cheap.bias, before.cheap.bias)
    torch.testing.assert_close(after.cheap_norm.weight, before.cheap_norm.weight * second)
    for expected, found in zip(
        in_both_modes(network, IMAGES), in_both_modes(folded, IMAGES), strict=True
    ):
        assert relative(expected, found) <= 1e-12
    assert receipt.rows[0].undone_by == ("branch.cheap.weight",)


def test_a_gate_that_is_zero_cannot_be_undone():
    network = gated(Ghost(), activation="tanh")
    ((_, attachment),) = attachments(network)
    with torch.no_grad():
        for parameter in attachment.parameters():
            parameter.zero_()
    assert bool((the_gate(network) == 0).all())
    with pytest.raises(FoldError) as raised:
        attnlab.fold(network, example=IMAGES)
    assert (
        "'branch.cheap.weight' would have to be divided by gates as small as 0e+00, which "
        "torch.float64 does not hold" in str(raised.value)
    )


def test_an_inverse_that_the_precision_does_not_hold():
    network = gated(Ghost()).half()
    ((_, attachment),) = attachments(network)
    with torch.no_grad():
        last = [p for p in attachment.parameters() if p.dim() == 1][-1]
        last.fill_(-15.0)
    with pytest.raises(FoldError, match=r"gates as small as 3e-07, which torch\.float16 does not"):
        attnlab.fold(network, example=IMAGES.half())


def test_negative_gates_pass_where_no_relu_is():
    network = gated(Excited(nn.Identity()), activation="tanh")
    assert bool((the_gate(network) < 0).any())
    folded, _ = attnlab.fold(network, example=IMAGES)
    with torch.no_grad():
        assert relative(network(IMAGES), folded(IMAGES)) <= 1e-12
    network = gated(Excited(nn.ReLU()), activation="tanh")
    with pytest.raises(FoldError):
        attnlab.fold(network, example=IMAGES)


def test_attention_that_mixes_channels_cannot_be_undone():
    """ECA's taps are shared by all channels, so they cannot undo a gate per channel."""
    network = gated(nn.Sequential(nn.Conv2d(C, C, 1), timm.layers.EcaModule(C)))
    with pytest.raises(FoldError, match=r"is also read by mean in 'branch\.1'"):
        attnlab.fold(network, example=IMAGES)


@pytest.mark.parametrize("name", ["seresnet18", "ghostnet_050"])
def test_families(name):
    torch.manual_seed(0)
    network = stir(timm.create_model(name, num_classes=7)).eval().double()
    images = torch.randn(2, 3, 64, 64, dtype=torch.float64)
    network, _ = attnlab.insert(network, "asr:se", example=images)
    folded, receipt = attnlab.fold(stir_gates(network), example=images)
    assert all(row.undone_by and row.error <= 1e-12 for row in receipt.rows)
    with torch.no_grad():
        assert relative(network(images), folded(images)) <= 1e-11
