"""Whole networks: replacement with a receipt, RedNet, a ResNet of local attention."""

from __future__ import annotations

from math import inf, nan

import pytest
import timm
import torch
import torchvision
from torch import nn

import attnlab
from attnlab._errors import OptionError, SelectionError, SiteError, UnknownNameError
from attnlab.evolution import (
    EvolutionConv2d,
    Involution2d,
    LocalAttention2d,
    WeightNetFunction,
    Window,
    attention_resnet,
    native_status,
    rednet,
    replace,
)
from attnlab.evolution.replace import ReplaceWarning, _warn_if_too_far

IMAGE = torch.zeros(1, 3, 64, 64)


def count(model):
    return sum(p.numel() for p in model.parameters())


def test_rednet_parameters():
    """The authors report 9.23 M and 15.54 M."""
    assert count(rednet(26)) == 9_233_166
    assert count(rednet(50)) == 15_540_806


def test_rednet_runs_on_odd_sizes():
    network = rednet(26, num_classes=7).eval()
    with torch.no_grad():
        assert network(torch.zeros(1, 3, 65, 57)).shape == (1, 7)


def test_attention_resnet():
    network = attention_resnet(26, num_classes=5).eval()
    layers = [m for m in network.modules() if isinstance(m, LocalAttention2d)]
    assert len(layers) == 8
    with torch.no_grad():
        assert network(IMAGE).shape == (1, 5)


@pytest.mark.parametrize(
    "build",
    [
        lambda: torchvision.models.resnet18(num_classes=4),
        lambda: timm.create_model("resnet18", num_classes=4),
        lambda: attnlab.create("resnet20", num_classes=4),
    ],
    ids=["torchvision", "timm", "attnlab"],
)
@pytest.mark.parametrize("operator", ["involution", "local_attention", "channel_attention"])
def test_replaces_in_every_library(build, operator):
    model = build().eval()
    keys = set(model.state_dict())
    changed, receipt = replace(model, operator, kernel_size=3, example=IMAGE)
    assert set(model.state_dict()) == keys
    assert receipt.parameters_before == count(model)
    assert receipt.parameters_after == count(changed)
    assert len(receipt.sites) > 5
    assert changed(IMAGE).shape == model(IMAGE).shape
    for site in receipt.sites:
        assert not isinstance(changed.get_submodule(site), nn.Conv2d)


@pytest.mark.skipif(not native_status().available, reason="MACs are counted on native operators")
def test_macs_of_one_involution():
    """reduce D²/r, span K²GD/r, aggregation K²D, for each of 16·16 pixels."""
    model = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1, bias=False))
    _, receipt = replace(model, "involution", kernel_size=5, example=torch.zeros(1, 16, 16, 16))
    assert receipt.macs_before == 9 * 16 * 16 * 256
    assert receipt.macs_after == (16 * 4 + 25 * 4 + 25 * 16) * 256


def test_involution_starts_in_proportion():
    """The authors' start squares the scale in every layer of a network in eval mode: 16 here."""
    torch.manual_seed(0)
    model = torchvision.models.resnet50(num_classes=4).eval()
    image, where = torch.randn(2, 3, 64, 64), "layer*.conv2"
    changed, receipt = replace(model, "involution", where=where, kernel_size=7, example=image)
    assert receipt.relative_change < 3
    assert "involution starts linear: its maps do not depend on the input yet" in receipt.notes
    with torch.no_grad():
        assert changed(image).abs().max() < 1e3
    with pytest.warns(ReplaceWarning, match="Replaced by involution, the output of the network "):
        _, receipt = replace(
            model, "involution", where=where, kernel_size=7, example=image, start="paper"
        )
    assert not receipt.relative_change < 1e3


@pytest.mark.parametrize(
    ("largest", "relative", "moved"),
    [
        (2e31, 5e30, "moved by 2e+31, 5e+30 times its size"),
        (2e4, inf, "moved by 2e+04, inf times its size"),
        (inf, inf, "is not finite"),
        (nan, nan, "is not finite"),
    ],
)
def test_the_warning_has_the_number(largest, relative, moved):
    with pytest.warns(ReplaceWarning) as caught:
        _warn_if_too_far("involution", largest, relative)
    assert str(caught[0].message) == (
        f"Replaced by involution, the output of the network {moved}. "
        "Norms that take no statistics of the batch (eval mode) do not bound an operator whose "
        "output grows with the square of its input. Give it a start that does "
        '(start="linear" for involution), or train before it is used in eval mode.'
    )


@pytest.mark.parametrize(("largest", "relative"), [(3e3, 0.9), (3.0, 1e308), (None, None)])
def test_no_warning_in_proportion_to_an_output_of_zeros_or_without_one(largest, relative):
    _warn_if_too_far("involution", largest, relative)


def test_where():
    model = torchvision.models.resnet18()
    for where, expected in (
        ("layer3.*.conv2", ("layer3.0.conv2", "layer3.1.conv2")),
        (["layer1.0.conv1"], ("layer1.0.conv1",)),
        (lambda _, conv: conv.in_channels == 512, ("layer4.0.conv2", "layer4.1.conv1")),
    ):
        changed, receipt = replace(model, "involution", where=where, example=IMAGE)
        assert receipt.sites[: len(expected)] == expected
        assert isinstance(changed.get_submodule(expected[0]), Involution2d)


def depthwise(convolution: nn.Conv2d) -> nn.Module:
    channels, size = convolution.in_channels, convolution.kernel_size
    return nn.Conv2d(channels, channels, size, padding=convolution.padding, groups=channels)


def test_an_operator_of_ones_own():
    model = torchvision.models.resnet18()
    changed, receipt = replace(model, depthwise, where="layer*.1.conv2", example=IMAGE)
    assert receipt.action == "replace by depthwise"
    assert receipt.sites == tuple(f"layer{n}.1.conv2" for n in (1, 2, 3, 4))
    widths = (64, 128, 256, 512)  # 9C weights and C biases in the place of 9C²
    assert receipt.parameters_added == sum(10 * c - 9 * c * c for c in widths)
    assert changed.layer3[1].conv2.groups == 256
    assert model.layer3[1].conv2.groups == 1


class Written(EvolutionConv2d):
    """A class of one's own, whose kernel is written for each image."""

    def __init__(self, in_channels, out_channels, kernel_size, **layer):
        function = WeightNetFunction(in_channels, out_channels, kernel_size)
        super().__init__(in_channels, out_channels, kernel_size, function, **layer)


def test_a_class_of_ones_own_has_the_shape_of_the_convolution():
    model = torchvision.models.resnet18()
    changed, receipt = replace(model, Written, where="layer2.0.conv1", example=IMAGE)
    layer = changed.layer2[0].conv1
    assert type(layer) is Written
    assert receipt.sites == ("layer2.0.conv1",)
    assert layer.window == Window.centred(3, 2)
    # A squeeze to 16, two activations for each of 128 outputs, and 64·9 weights by one each.
    written = 64 * 16 + 16 + 16 * 256 + 256 + 128 * 64 * 9
    assert receipt.parameters_added == written - 128 * 64 * 9
    image = torch.randn(2, 64, 9, 9)
    assert layer(image).shape == model.layer2[0].conv1(image).shape


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"operator": depthwise, "heads": 4},
            OptionError,
            "Options (heads) are for operators given by name. Set them in the function that builds "
            "yours.",
        ),
        (
            {"operator": "involutin"},
            UnknownNameError,
            "Unknown operator 'involutin'. Did you mean 'involution'? Expected one of: involution, "
            "local_attention, channel_attention, dynamic.",
        ),
        (
            {"operator": "involution", "where": "layer2.0.conv1"},
            SiteError,
            "layer2.0.conv1 cannot become involution: involution keeps the number of channels, and "
            "it maps 64 to 128.",
        ),
        (
            {"operator": "involution", "where": "stage*"},
            SelectionError,
            "where='stage*' selects no convolution that could become involution. The network has "
            "17 larger than 1×1: conv1, layer1.0.conv1, layer1.0.conv2, layer1.1.conv1, "
            "layer1.1.conv2, layer2.0.conv1, layer2.0.conv2, layer2.1.conv1.",
        ),
        (
            {"operator": "involution", "where": lambda name, _: name.startswith("stage")},
            SelectionError,
            "where, a function, selects no convolution that could become involution. The network "
            "has 17 larger than 1×1: conv1, layer1.0.conv1, layer1.0.conv2, layer1.1.conv1, "
            "layer1.1.conv2, layer2.0.conv1, layer2.0.conv2, layer2.1.conv1.",
        ),
        (
            {"operator": "local_attention", "head": 4},
            OptionError,
            "Operator 'local_attention' has no option 'head'. Did you mean 'heads'? It takes: "
            "kernel_size, heads, positional, boundary, projection, bias.",
        ),
    ],
)
def test_errors(arguments, error, message):
    with pytest.raises(error) as caught:
        replace(torchvision.models.resnet18(), **arguments)
    assert str(caught.value) == message
