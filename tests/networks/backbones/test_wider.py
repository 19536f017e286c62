"""Plain networks with as many parameters as another: how many they get, and what stays."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import attnlab
from attnlab._errors import OptionError


def count(network: nn.Module) -> int:
    return sum(each.numel() for each in network.parameters())


@pytest.mark.parametrize("wanted", [272_474, 272_600, 274_847, 300_001, 677_354])
@pytest.mark.parametrize("shortcut", ["projection", "zero_pad"])
def test_a_resnet20_misses_the_number_by_half_a_channel_at_most(wanted: int, shortcut: str) -> None:
    # A hidden channel of the first stage has 9·16 weights in, 9·16 out and a norm's two.
    network = attnlab.create("resnet20", shortcut=shortcut, parameters=wanted)
    assert abs(count(network) - wanted) <= (9 * 16 + 9 * 16 + 2) / 2


@pytest.mark.parametrize("wanted", [1_704_154, 1_750_000, 2_500_000])
def test_bottlenecks_come_near(wanted: int) -> None:
    assert count(attnlab.create("resnet164", parameters=wanted)) == pytest.approx(wanted, rel=1e-3)


def test_blocks_grow_evenly_and_the_states_keep_their_width() -> None:
    plain = attnlab.create("resnet20")
    wide = attnlab.create("resnet20", parameters=2 * count(plain))
    for name, module in wide.named_modules():
        own = plain.get_submodule(name)
        if isinstance(module, nn.Conv2d) and name.endswith("conv1") and "." in name:
            assert module.in_channels == own.in_channels
            assert 1.8 < module.out_channels / own.out_channels < 2.2
        if isinstance(module, nn.Conv2d) and name.endswith("conv2"):
            assert module.out_channels == own.out_channels
    images = torch.randn(2, 3, 32, 32)
    assert len(attnlab.steps(wide, images)) == len(attnlab.steps(plain, images)) == 9


def test_the_number_it_has_changes_nothing() -> None:
    torch.manual_seed(0)
    plain = attnlab.create("resnet20")
    torch.manual_seed(0)
    same = attnlab.create("resnet20", parameters=count(plain))
    for (name, one), (_, other) in zip(
        plain.state_dict().items(), same.state_dict().items(), strict=True
    ):
        assert torch.equal(one, other), name


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (1000, "Expected parameters of at least 272,474, which the network has as it is, but got"),
        (0, "parameters"),
        (True, "parameters"),
    ],
)
def test_what_cannot_be_is_refused(wanted: object, message: str) -> None:
    with pytest.raises((OptionError, TypeError, ValueError), match=message):
        attnlab.create("resnet20", parameters=wanted)
