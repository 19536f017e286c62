"""Trained SE, ECA and CBAM of timm and torchvision in our gates: equal outputs."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import timm
import torch
import torchvision
from timm.layers import CecaModule, EcaModule, EffectiveSEModule, SEModule
from timm.layers.cbam import CbamModule
from timm.models._efficientnet_blocks import SqueezeExcite
from timm.models.senet import SEModule as LegacySEModule
from torch import nn
from torchvision.ops import SqueezeExcitation

from attnlab._errors import OptionError, UnknownNameError, WeightsError
from attnlab.gates import build_gate, gate_from_library, library_weights

MODULES: dict[str, Callable[[int], nn.Module]] = {
    "timm se": SEModule,
    "timm se without bias": functools.partial(SEModule, bias=False),
    "timm se of hard functions": functools.partial(
        SEModule, act_layer=nn.SiLU, gate_layer="hard_sigmoid"
    ),
    "timm se wider than its input": functools.partial(SEModule, rd_channels=100),
    "timm legacy se": functools.partial(LegacySEModule, reduction=16),
    "timm efficientnet se": functools.partial(SqueezeExcite, act_layer=nn.SiLU),
    "torchvision se": lambda channels: SqueezeExcitation(channels, 13),
    "torchvision mobilenet se": lambda channels: SqueezeExcitation(
        channels, 16, scale_activation=nn.Hardsigmoid
    ),
    "timm ese": EffectiveSEModule,
    "timm ese of a sigmoid": functools.partial(EffectiveSEModule, gate_layer="sigmoid"),
    "timm eca": EcaModule,
    "timm cbam": CbamModule,
    "timm cbam with bias": functools.partial(CbamModule, mlp_bias=True, spatial_kernel_size=3),
}


def trained(build: Callable[[int], nn.Module], dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(0)
    module = build(48).to(dtype)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=0.7)
    module.train()(torch.randn(4, 48, 6, 6, dtype=dtype))  # so that norms have seen data
    return module


def relative_error(got: torch.Tensor, expected: torch.Tensor) -> float:
    return ((got - expected).abs().max() / expected.abs().max()).item()


@pytest.mark.parametrize(("dtype", "error"), [(torch.float64, 1e-14), (torch.float32, 1e-6)])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", MODULES)
def test_outputs_are_equal(name: str, training: bool, dtype: torch.dtype, error: float) -> None:
    module = trained(MODULES[name], dtype).train(training)
    gate = gate_from_library(module, channels=48)
    assert gate.training is training
    for size in ((7, 7), (5, 9)):
        x = torch.randn(3, 48, *size, dtype=dtype) + 0.3
        assert relative_error(x * gate(x), module(x)) < error
    for (key, mine), theirs in zip(
        gate.named_buffers(), (b for _, b in module.named_buffers()), strict=True
    ):
        torch.testing.assert_close(mine, theirs, msg=key)  # the norm went on counting alike


def test_all_attention_of_whole_networks() -> None:
    """Random weights in the shapes of trained ones: widths that no rule of ours would give."""
    networks = (
        timm.create_model("seresnet18"),
        timm.create_model("efficientnet_b0"),
        timm.create_model("mobilenetv3_small_100"),
        torchvision.models.mobilenet_v3_small(weights=None),
        torchvision.models.regnet_y_400mf(weights=None),
        torchvision.models.efficientnet_b0(weights=None),
    )
    kinds = (SEModule, SqueezeExcite, SqueezeExcitation)
    found = 0
    for network in networks:
        for module in network.eval().modules():
            if isinstance(module, kinds):
                gate = gate_from_library(module)
                x = torch.randn(2, gate.channels, 4, 4)
                torch.testing.assert_close(x * gate(x), module(x), rtol=1e-6, atol=1e-6)
                found += 1
    assert found == 8 + 16 + 9 + 9 + 16 + 16


def test_dtype_is_kept() -> None:
    gate = gate_from_library(SEModule(16).double())
    assert gate(torch.randn(2, 16, 3, 3, dtype=torch.float64)).dtype == torch.float64


def test_weights_of_a_checkpoint() -> None:
    module = SEModule(64, rd_divisor=1)
    gate = build_gate("se", 64)
    gate.load_state_dict(library_weights("timm:se", module.state_dict()))
    x = torch.randn(2, 64, 5, 5)
    torch.testing.assert_close(x * gate(x), module(x), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("source", "weights", "message"),
    [
        (
            "timm:sse",
            {},
            "Unknown source of weights 'timm:sse'. Did you mean 'timm:se' or 'timm:ese' or "
            "'timm:eca'? Expected one of: timm:se, timm:efficientnet_se, "
            "torchvision:se, timm:ese, timm:eca, timm:cbam.",
        ),
        (
            "timm:eca",
            {"conv.weight": torch.zeros(1, 1, 3), "conv.bias": torch.zeros(1)},
            "The weights have conv.bias, which 'timm:eca' does not. Its keys are: conv.weight.",
        ),
        (
            "timm:se",
            {"fc1.weight": torch.zeros(4, 64, 1, 1)},
            "The weights of 'timm:se' lack fc2.weight.",
        ),
    ],
)
def test_wrong_weights(source: str, weights: dict[str, torch.Tensor], message: str) -> None:
    with pytest.raises((UnknownNameError, WeightsError)) as error:
        library_weights(source, weights)
    assert str(error.value) == message


TAKE_IT = "which our gate does not have. Take it as it is: Multiplied(module)."


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (
            SEModule(16, add_maxpool=True),
            f"SEModule has a maximum next to the mean (add_maxpool), {TAKE_IT}",
        ),
        (
            SEModule(16, norm_layer=nn.BatchNorm2d),
            f"SEModule has a norm between its layers, {TAKE_IT}",
        ),
        (SEModule(16, act_layer=nn.GELU), f"SEModule has GELU as its act, {TAKE_IT}"),
        (SEModule(16, gate_layer="tanh"), f"SEModule has Tanh as its gate, {TAKE_IT}"),
        (
            EcaModule(16, use_mlp=True),
            f"EcaModule has a second convolution (use_mlp), {TAKE_IT}",
        ),
        (
            EcaModule(16, gate_layer="hard_sigmoid"),
            f"EcaModule has a last function other than a sigmoid, {TAKE_IT}",
        ),
        (
            EcaModule(16),
            "EcaModule does not know its number of channels, which our gate asks for. Pass it: "
            "gate_from_library(module, channels=...).",
        ),
        (
            CecaModule(16),
            "Expected a module of timm or torchvision but got CecaModule. It takes: "
            "timm.layers.squeeze_excite.SEModule, timm.models.senet.SEModule, "
            "timm.models._efficientnet_blocks.SqueezeExcite, "
            "torchvision.ops.misc.SqueezeExcitation, "
            "timm.layers.squeeze_excite.EffectiveSEModule, timm.layers.eca.EcaModule, "
            "timm.layers.cbam.CbamModule. Any module that returns its input times a gate goes in "
            "with Multiplied.",
        ),
    ],
)
def test_what_ours_cannot_express(module: nn.Module, message: str) -> None:
    with pytest.raises(OptionError) as error:
        gate_from_library(module)
    assert str(error.value) == message


def test_channels_that_are_not_the_modules() -> None:
    with pytest.raises(OptionError) as error:
        gate_from_library(SEModule(16), channels=8)
    assert str(error.value) == (
        "SEModule was built for 16 channels, not for 8. Leave channels out."
    )
