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
from attnlab.evolution.replace import (
    ReplaceWarning,
    _name_for_files,
    _notes,
    _warn_if_too_far,
    build_own,
)

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


def test_where_is_every_convolution_that_can_be_replaced():
    """Not a stem of fewer than 8 channels, one of 1×1, one in groups or one around no pixel."""
    model = nn.Sequential(
        nn.Conv2d(7, 8, 3, padding=1),
        nn.Conv2d(8, 8, (1, 3), padding=(0, 1)),
        nn.Conv2d(8, 8, 1),
        nn.Conv2d(8, 8, 3, padding=1, groups=2),
        nn.Conv2d(8, 8, 3),
        nn.Conv2d(8, 9, 3, padding=1),
    )
    image = torch.zeros(1, 7, 6, 6)
    for operator, expected in (
        ("involution", ("1",)),
        ("local_attention", ("1", "5")),
        ("dynamic", ("1", "4", "5")),
    ):
        options = {"heads": 1} if operator == "local_attention" else {}
        _, receipt = replace(model, operator, example=image, **options)
        assert receipt.sites == expected


@pytest.mark.parametrize(
    ("convolution", "obstacle"),
    [
        (nn.Conv2d(8, 8, 3, padding=1, groups=2), "it has 2 groups"),
        (nn.Conv2d(8, 8, 3), "its window is not centred (padding (0, 0))"),
        (nn.Conv2d(8, 8, (3, 4), padding=1), "its window is not centred (padding (1, 1))"),
        (nn.Conv2d(8, 8, 3, padding=1, dilation=2), "its window is not centred (padding (1, 1))"),
        (nn.Conv2d(8, 8, 3, padding="same"), "its padding is not zeros given as numbers"),
        (
            nn.Conv2d(8, 8, 3, padding=1, padding_mode="reflect"),
            "its padding is not zeros given as numbers",
        ),
    ],
)
@pytest.mark.parametrize("operator", ["involution", "channel_attention"])
def test_what_stands_in_the_way(operator, convolution, obstacle):
    with pytest.raises(SiteError) as caught:
        replace(nn.Sequential(convolution), operator, where="0", example=torch.zeros(1, 8, 9, 9))
    assert str(caught.value) == f"0 cannot become {operator}: {obstacle}."


@pytest.mark.parametrize(
    "convolution",
    [
        nn.Conv2d(8, 8, 3, (2, 1), (1, 2), (1, 2), bias=False),
        nn.Conv2d(8, 8, (5, 3), (1, 3), (4, 1), (2, 1)),
    ],
)
@pytest.mark.parametrize("operator", ["involution", "local_attention", "dynamic", "own"])
@pytest.mark.parametrize("training", [True, False])
def test_the_geometry_the_type_and_the_mode_are_those_of_the_convolution(
    operator, convolution, training
):
    """Each axis has its own stride, dilation and padding."""
    model = nn.Sequential(convolution).double().train(training)
    image = torch.randn(2, 8, 11, 10, dtype=torch.float64)
    options = {"heads": 2} if operator == "local_attention" else {}
    changed, _ = replace(
        model, Written if operator == "own" else operator, example=image, **options
    )
    assert changed(image).shape == model(image).shape
    assert changed(image).dtype == torch.float64
    assert all(module.training is training for module in changed.modules())
    window = changed[0].window
    assert (window.stride, window.dilation) == (convolution.stride, convolution.dilation)
    assert (window.kernel_size, window.padding) == (convolution.kernel_size, convolution.padding)
    if operator != "involution":  # it has none
        assert (changed[0].bias is None) is (convolution.bias is None)


def test_a_dynamic_convolution_has_the_groups_and_the_padding_of_the_one_before():
    convolution = nn.Conv2d(8, 4, (2, 3), (1, 2), (2, 0), (1, 2), groups=2)
    image = torch.randn(2, 8, 7, 9)
    changed, _ = replace(nn.Sequential(convolution), "dynamic", where="0", example=image)
    assert changed[0].function.bank.shape[1:] == convolution.weight.shape
    assert changed[0].window == Window.of((2, 3), (1, 2), (1, 2), (2, 0))
    assert changed(image).shape == convolution(image).shape


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


def test_a_class_of_ones_own_may_have_another_window_and_starts_without_a_bias():
    image = torch.randn(1, 8, 7, 7)
    model = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1))
    changed, _ = replace(model, Written, kernel_size=5, example=image)
    assert changed[0].window == Window.centred(5)
    assert changed[0].bias is not None
    assert build_own(Written, 8, 8, Window.centred(3)).bias is None
    assert build_own(Written, 8, 8, Window.centred(3), bias=True).bias is not None


def test_only_what_an_import_finds_has_a_name_in_files():
    class Inside(Written):
        pass

    started = type("Started", (Written,), {"__module__": "__main__"})
    assert _name_for_files("involution") == "involution"
    assert _name_for_files(Written) == f"{__name__}.Written"
    assert [_name_for_files(each) for each in (Inside, started, depthwise)] == [""] * 3


def test_what_a_receipt_notes():
    new = "weights of the replaced layers are new"
    linear = "involution starts linear: its maps do not depend on the input yet"
    selected = "MACs are not counted: how much the network computes depends on what it selects"
    assert _notes(linear=False, counted=True) == (new,)
    assert _notes(linear=True, counted=True) == (new, linear)
    assert _notes(linear=False, counted=False) == (new, selected)
    model, image = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1)), torch.randn(1, 8, 5, 5)
    for operator, options, expected in (
        ("involution", {}, (new, linear)),
        ("involution", {"start": "paper"}, (new,)),
        ("dynamic", {}, (new,)),
    ):
        assert replace(model, operator, example=image, **options)[1].notes == expected


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"operator": Written, "bias": True},
            OptionError,
            "Operator 'Written' has no option 'bias'. It takes: kernel_size.",
        ),
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
