"""Operators in Evolution form, on native kernels and in plain torch, with their gradients."""

from __future__ import annotations

from collections.abc import Callable

import torch
from tests.tools.entries.shared import figures, images, network, output, receipt
from torch import Tensor, nn


def _input(*shape: int, seed: int = 7) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _both(function: Callable[..., Tensor], *given: Tensor) -> object:
    """The value and the gradients, by both kinds of kernels."""
    from attnlab.evolution import use_native

    found = {}
    for name, native in (("native", True), ("plain", False)):
        with use_native(native):
            leaves = [each.detach().clone().requires_grad_() for each in given]
            value = function(*leaves)
            weight = torch.linspace(-1, 1, value.numel(), dtype=value.dtype).view_as(value)
            gradients = torch.autograd.grad((value * weight).sum(), leaves)
        found[name] = [figures(each) for each in (value, *gradients)]
    return found


def _layer(layer: nn.Module, *shape: int) -> object:
    generator = torch.Generator().manual_seed(8)
    layer = layer.double().eval()
    with torch.no_grad():
        for parameter in layer.parameters():
            drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(0.3 * drawn)
    return _both(layer, _input(*shape))


def involution() -> object:
    from attnlab.evolution import Involution2d, involution2d

    return {
        "function": _both(
            lambda x, maps: involution2d(x, maps, 3), _input(2, 8, 6, 6), _input(2, 2, 9, 6, 6)
        ),
        "layer": _layer(Involution2d(8, 5, groups=2), 2, 8, 7, 7),
        "stride": _layer(Involution2d(8, 3, groups=2, stride=2), 2, 8, 8, 8),
        "dilation": _layer(Involution2d(8, 3, groups=4, dilation=2), 2, 8, 8, 8),
    }


def local_attention() -> object:
    from attnlab.evolution import LocalAttention1d, LocalAttention2d, LocalAttention3d

    plain = {
        str(positional): _layer(
            LocalAttention2d(8, 8, kernel_size=3, heads=2, positional=positional), 2, 8, 6, 6
        )
        for positional in (None, "relative", "absolute")
    }
    return {
        **plain,
        "line": _layer(LocalAttention1d(8, 8, kernel_size=5, heads=2), 2, 8, 11),
        "volume": _layer(LocalAttention3d(4, 4, kernel_size=3, heads=2), 1, 4, 4, 5, 4),
        "zero": _layer(LocalAttention2d(8, 8, kernel_size=3, heads=2, boundary="zero"), 2, 8, 6, 6),
        "projection": _layer(
            LocalAttention2d(8, 6, kernel_size=3, heads=2, stride=2, projection=True), 2, 8, 6, 6
        ),
    }


def channel_attention() -> object:
    from attnlab.evolution import ChannelAttention2d

    return _layer(ChannelAttention2d(6, 6, kernel_size=3), 2, 6, 6, 6)


def dynamic() -> object:
    from attnlab.evolution import (
        DynamicConv2d,
        EvolutionConv2d,
        ODConvFunction,
        WeightNetFunction,
    )

    return {
        "sigmoid": _layer(DynamicConv2d(8, 6, 3, padding=1), 2, 8, 6, 6),
        "softmax": _layer(DynamicConv2d(8, 6, 3, routing="softmax", groups=2), 2, 8, 6, 6),
        "weightnet": _layer(EvolutionConv2d(8, 8, 3, WeightNetFunction(8, 8, 3)), 2, 8, 6, 6),
        "odconv": _layer(EvolutionConv2d(8, 8, 3, ODConvFunction(8, 8, 3)), 2, 8, 6, 6),
    }


def primitives() -> object:
    from attnlab.evolution import Window, av, qk, sc, spanned_av

    window = Window.centred(3)
    x, maps, features = _input(2, 8, 6, 6), _input(2, 2, 9, 6, 6), _input(2, 4, 6, 6, seed=9)
    weight, bias = _input(18, 4, seed=10), _input(18, seed=11)
    return {
        "av": _both(lambda a, b: av(a, b, window), maps, x),
        "qk": _both(lambda a, b: qk(a, b, 2, window), _input(2, 8, 6, 6, seed=12), x),
        "sc": _both(lambda a, b: sc(a, b, (6, 6), window), maps, x),
        "spanned_av": _both(
            lambda a, b, c, d: spanned_av(a, b, c, d, 2, window), features, x, weight, bias
        ),
    }


def attention_as_conv() -> object:
    from attnlab.evolution import attention_as_conv

    convolution = nn.Conv2d(4, 4, 3, padding=1).double()
    with torch.no_grad():
        convolution.weight.copy_(_input(4, 4, 3, 3))
        assert convolution.bias is not None
        convolution.bias.copy_(_input(4))
        return figures(attention_as_conv(convolution)(_input(2, 4, 6, 6)))


def described() -> object:
    from attnlab.evolution import OPERATORS, describe_operator

    fields = ["generation", "function_scope", "aggregation", "space", "channel", "parameters"]
    found = {name: describe_operator(info.build(16, 3)) for name, info in OPERATORS.items()}
    return {name: [getattr(each, field) for field in fields] for name, each in found.items()}


def replaced() -> object:
    from attnlab.evolution import replace

    plain = network()
    torch.manual_seed(0)
    chosen, made = replace(plain, "involution", example=images(1))
    return {"receipt": receipt(made), "output": output(chosen, images(2))}


def rednet() -> object:
    from attnlab.evolution import attention_resnet, rednet

    found = {}
    for name, build in (("rednet", rednet), ("attention", attention_resnet)):
        torch.manual_seed(0)
        made = build(26, num_classes=5).double()
        found[name] = [sum(p.numel() for p in made.parameters()), output(made, images(1, 64))]
    return found
