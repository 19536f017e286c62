"""The ResNets against the formula, their initial weights and their names."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab._errors import OptionError, UnknownNameError
from attnlab.networks.backbones import build_backbone
from attnlab.networks.backbones.resnet import (
    BasicBlock,
    ResNet,
    basic_resnet,
    bottleneck_resnet,
    zero_pad_shortcut,
)

State = dict[str, Tensor]


def norm(x: Tensor, state: State, name: str) -> Tensor:
    """(x − μ) / sqrt(σ² + 1e-5) · γ + β"""
    mean, var, scale, shift = (
        state[f"{name}.{k}"][:, None, None]
        for k in ("running_mean", "running_var", "weight", "bias")
    )
    return (x - mean) / torch.sqrt(var + 1e-5) * scale + shift


def reference(x: Tensor, state: State, blocks: int, layers: int, option_a: bool = False) -> Tensor:
    """A post-activation ResNet from its weights alone; `layers` = 2 (basic) or 3 (bottleneck)."""
    x = torch.relu(norm(F.conv2d(x, state["conv1.weight"], padding=1), state, "bn1"))
    for stage in (1, 2, 3):
        for index in range(blocks):
            block = f"layer{stage}.{index}"
            stride = 2 if stage > 1 and index == 0 else 1
            strided = 1 if layers == 2 else 2
            branch = x
            for layer in range(1, layers + 1):
                weight = state[f"{block}.conv{layer}.weight"]
                branch = F.conv2d(
                    branch,
                    weight,
                    stride=stride if layer == strided else 1,
                    padding=weight.shape[-1] // 2,
                )
                branch = norm(branch, state, f"{block}.bn{layer}")
                if layer < layers:
                    branch = torch.relu(branch)
            if option_a and stride == 2:
                channels = x.shape[1]
                shortcut = torch.zeros_like(branch)
                shortcut[:, channels // 2 : channels // 2 + channels] = x[:, :, ::2, ::2]
            elif f"{block}.shortcut.0.weight" in state:
                shortcut = F.conv2d(x, state[f"{block}.shortcut.0.weight"], stride=stride)
                shortcut = norm(shortcut, state, f"{block}.shortcut.1")
            else:
                shortcut = x
            x = torch.relu(shortcut + branch)
    return x.mean(dim=(2, 3)) @ state["fc.weight"].T + state["fc.bias"]


def randomise_norms(network: nn.Module) -> None:
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias)
            nn.init.normal_(module.running_mean)
            nn.init.uniform_(module.running_var, 0.5, 1.5)


@pytest.mark.parametrize("size", [(32, 32), (17, 9)])
@pytest.mark.parametrize("kind", ["projection", "zero_pad", "bottleneck"])
def test_forward_is_the_formula(kind: str, size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    if kind == "bottleneck":
        network, blocks, layers = bottleneck_resnet(29), 3, 3
    else:
        network, blocks, layers = basic_resnet(20, shortcut=kind), 3, 2
    network.double().eval()
    randomise_norms(network)
    x = torch.randn(2, 3, *size, dtype=torch.float64)
    with torch.no_grad():
        expected = reference(x, network.state_dict(), blocks, layers, kind == "zero_pad")
        torch.testing.assert_close(network(x), expected, rtol=1e-12, atol=1e-12)


def test_zero_pad_shortcut() -> None:
    x = torch.arange(2 * 5 * 4, dtype=torch.float32).reshape(1, 2, 5, 4)
    padded = zero_pad_shortcut(x, 5, 2)
    assert padded.shape == (1, 5, 3, 2)
    assert torch.equal(padded[:, 1:3], x[:, :, ::2, ::2])
    assert not padded[:, [0, 3, 4]].any()


def test_names_of_the_first_blocks() -> None:
    def names(network: nn.Module) -> list[str]:
        weights = [k for k, _ in network.named_parameters() if k.endswith("weight")]
        return [
            k.removesuffix(".weight") for k in weights if not k.startswith(("layer1", "layer3"))
        ]

    norm_and_conv = ["conv1", "bn1", "conv2", "bn2"]
    assert names(build_backbone("resnet20")) == [
        "conv1",
        "bn1",
        *(f"layer2.0.{k}" for k in (*norm_and_conv, "shortcut.0", "shortcut.1")),
        *(f"layer2.1.{k}" for k in norm_and_conv),
        *(f"layer2.2.{k}" for k in norm_and_conv),
        "fc",
    ]
    assert [k for k in build_backbone("resnet83").state_dict() if k.startswith("layer1.0.")] == [
        f"layer1.0.{module}.{entry}"
        for module, entries in (
            *(
                (f"{kind}{i}", entries)
                for i in (1, 2, 3)
                for kind, entries in (
                    ("conv", ("weight",)),
                    (
                        "bn",
                        ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"),
                    ),
                )
            ),
            ("shortcut.0", ("weight",)),
            (
                "shortcut.1",
                ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"),
            ),
        )
        for entry in entries
    ]


def test_zero_pad_has_no_state_on_the_shortcut() -> None:
    state = build_backbone("resnet20", shortcut="zero_pad").state_dict()
    assert not [k for k in state if "shortcut" in k]


@pytest.mark.parametrize("name", ["resnet164", "mobilenet_v1", "vgg19_bn"])
def test_initial_weights(name: str) -> None:
    torch.manual_seed(0)
    for module in build_backbone(name).modules():
        if isinstance(module, nn.Conv2d):
            height, width = module.kernel_size
            std = math.sqrt(2 / (height * width * module.out_channels))
            # Five standard errors of a sample standard deviation.
            error = 5 / math.sqrt(2 * module.weight.numel())
            assert module.weight.std().item() == pytest.approx(std, rel=error)
            assert abs(module.weight.mean().item()) < 5 * std / math.sqrt(module.weight.numel())
        elif isinstance(module, nn.BatchNorm2d):
            assert (module.weight == 1).all()
            assert (module.bias == 0).all()


def test_ten_classes_of_colour_images_unless_told() -> None:
    for network in (ResNet(BasicBlock, 1), basic_resnet(8), bottleneck_resnet(11)):
        assert network.conv1.weight.shape == (16, 3, 3, 3)
        assert network.fc.weight.shape[0] == 10


def test_messages() -> None:
    with pytest.raises(UnknownNameError) as unknown:
        build_backbone("resnet20", shortcut="zeropad")
    assert str(unknown.value) == (
        "Unknown shortcut 'zeropad'. Did you mean 'zero_pad'? "
        "Expected one of: projection, zero_pad."
    )
    with pytest.raises(OptionError) as option:
        bottleneck_resnet(84)
    assert str(option.value) == (
        "Expected depth to be 9n+2 for a whole number n ≥ 1 but got 84. Nearest: 83."
    )
    with pytest.raises(OptionError) as option:
        build_backbone("resnet83", shortcut="zero_pad")
    assert str(option.value) == (
        "Network 'resnet83' has no option 'shortcut'. It takes: in_channels, parameters."
    )
    with pytest.raises(OptionError) as option:
        build_backbone("resnet83", 0)
    assert str(option.value) == "Expected num_classes to be at least 1 but got 0."
