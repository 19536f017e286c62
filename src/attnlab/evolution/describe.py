"""The operators side by side, as the paper's §3.6 compares them.

"Specific" means that the weights differ along an axis, "agnostic" that they are shared (the paper
defines the two the wrong way round).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from attnlab._errors import OptionError
from attnlab._imported import is_path
from attnlab.evolution.as_evolution import as_evolution
from attnlab.evolution.attention_layer import ChannelAttention2d, LocalAttention2d
from attnlab.evolution.dynamic import DynamicConv2d, ODConvFunction, WeightNetFunction
from attnlab.evolution.forms import AttentionKernel, Axis, Kernel, MapKernel, SpanKernel
from attnlab.evolution.involution import Involution2d
from attnlab.evolution.operator import EvolutionConv2d, Operator, Scope
from attnlab.evolution.replace import build_own, own_operator
from attnlab.evolution.window import Window


@dataclass(frozen=True)
class OperatorDescription:
    """One operator: how its kernel is made, what it reads, along which axes it differs."""

    operator: str
    generation: str
    """"input-agnostic" or "input-specific"."""
    function_scope: Scope
    """Pixels that the kernel function reads for the kernel of one position."""
    aggregation: str
    """Pixels and channels that one output value sums over."""
    space: str
    channel: str
    parameters: int

    def __str__(self) -> str:
        return (
            f"{self.operator}: {self.generation} (kernel from: {self.function_scope}), sums over "
            f"{self.aggregation}, {self.space} in space, {self.channel} in channels, "
            f"{self.parameters:,} parameters"
        )


def describe_operator(operator: nn.Module) -> OperatorDescription:
    """Describe `operator` (an `nn.Conv2d` or one of this package) as an Evolution."""
    evolution = as_evolution(operator)
    inputs = operator.in_channels
    if not isinstance(inputs, int):
        raise OptionError(f"Expected in_channels to be a number but got {inputs!r}.")
    window = 1 + max(_reach(operator))
    parameter = next(operator.parameters())
    training = operator.training
    try:
        with torch.no_grad():
            axes = operator.window.axes if isinstance(operator, Operator) else 2
            probe = torch.zeros(1, inputs, *[window] * axes, dtype=parameter.dtype)
            form = evolution.eval().form(probe.to(parameter.device))
    finally:
        operator.train(training)
    varies: frozenset[Axis] = form.varies
    size = "×".join(map(str, form.window.kernel_size))
    channels = inputs // form.groups
    return OperatorDescription(
        operator=type(operator).__name__,
        generation="input-specific" if "input" in varies else "input-agnostic",
        function_scope=_scope(operator),
        aggregation=f"{size} pixels, {channels} channel{'s' if channels > 1 else ''}",
        space="specific" if "space" in varies else "agnostic",
        channel=_channel_preference(form),
        parameters=sum(p.numel() for p in operator.parameters()),
    )


def _channel_preference(form: Kernel) -> str:
    if isinstance(form, SpanKernel) or (isinstance(form, MapKernel) and form.mix is None):
        sharing = form.channels // form.maps.shape[1]
        return "specific" if sharing == 1 else f"agnostic ({sharing} share a map)"
    if isinstance(form, AttentionKernel):
        sharing = form.value.shape[1] // form.heads
        return "specific" if sharing == 1 else f"specific by W_V ({sharing} share a map)"
    return "specific"


def _reach(operator: nn.Module) -> list[int]:
    """How far the window reaches along each axis."""
    assert isinstance(operator, Operator | nn.Conv2d)
    window = operator.window if isinstance(operator, Operator) else operator
    return [d * (k - 1) for d, k in zip(window.dilation, window.kernel_size, strict=True)]


def _scope(operator: nn.Module) -> Scope:
    if isinstance(operator, EvolutionConv2d):
        return operator.function.scope
    return operator.scope if isinstance(operator, Operator) else "none"


@dataclass(frozen=True)
class OperatorInfo:
    """One row of `attnlab operators`."""

    name: str
    build: Callable[[int, int], nn.Module]
    """Builds the operator from channels and kernel size, with the papers' other settings."""
    parameters: str
    """A formula; empty for one of your own, whose cost attnlab does not know."""
    multiply_adds: str
    """The number per output pixel; D channels, K window, r reduction, G groups, e experts."""
    paper: str


OPERATORS: dict[str, OperatorInfo] = {
    info.name: info
    for info in (
        OperatorInfo(
            "convolution",
            lambda d, k: nn.Conv2d(d, d, k, padding=k // 2, bias=False),
            "K²D²",
            "K²D²",
            "LeCun et al. 1989",
        ),
        OperatorInfo(
            "depthwise",
            lambda d, k: nn.Conv2d(d, d, k, padding=k // 2, groups=d, bias=False),
            "K²D",
            "K²D",
            "Howard et al. 2017",
        ),
        OperatorInfo(
            "involution",
            lambda d, k: Involution2d(d, k),
            "D²/r + K²GD/r",
            "D²/r + K²GD/r + K²D",
            "Li et al., CVPR 2021",
        ),
        OperatorInfo(
            "local_attention",
            lambda d, k: LocalAttention2d(d, d, k, max(1, d // 16), "relative"),
            "3D² + KD",
            "3D² + 2K²D",
            "Ramachandran et al., NeurIPS 2019",
        ),
        OperatorInfo(
            "channel_attention",
            lambda d, k: ChannelAttention2d(d, d, k),
            "3D² + K²D",
            "3D² + 2K²D",
            "Cai, Evolution §3.4",
        ),
        OperatorInfo(
            "dynamic",
            lambda d, k: DynamicConv2d(d, d, k, padding=k // 2),
            "eK²D² + eD",
            "K²D² (+ eK²D² per image)",
            "Yang et al., NeurIPS 2019",
        ),
        OperatorInfo(
            "weightnet",
            lambda d, k: EvolutionConv2d(d, d, k, WeightNetFunction(d, d, k), padding=k // 2),
            "K²D² + 3D·max(16, D/16) + …",
            "K²D² (+ K²D² per image)",
            "Ma et al., ECCV 2020",
        ),
        OperatorInfo(
            "odconv",
            lambda d, k: EvolutionConv2d(d, d, k, ODConvFunction(d, d, k), padding=k // 2),
            "eK²D² + D²/16 + …",
            "K²D² (+ eK²D² per image)",
            "Li et al., ICLR 2022",
        ),
    )
}
"""Every feature operator by its name, in the order of `attnlab operators`."""


def operator_infos(own: Sequence[str] = ()) -> list[OperatorInfo]:
    """Every feature operator, then your own, as in "my_operators.MyOperator"."""
    return [*OPERATORS.values(), *(_own_info(path) for path in own)]


def _own_info(path: str) -> OperatorInfo:
    if not is_path(path):
        raise OptionError(
            f"Expected an operator of your own, as in 'my_operators.MyOperator', but got {path!r}. "
            f"Those of attnlab are shown anyway."
        )
    kind = own_operator(path)
    return OperatorInfo(path, lambda d, k: build_own(kind, d, d, Window.centred(k)), "", "", "")
