"""Kernels that depend on the image but not on the position: CondConv, DyConv, WeightNet, ODConv.

All become one convolution with the batch in its groups.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab._errors import OptionError, unknown_name
from attnlab.evolution.forms import SampleKernel
from attnlab.evolution.operator import KernelFunction, Operator
from attnlab.evolution.primitives import check_groups
from attnlab.evolution.window import Pair, Sizes, Window

Routing = Literal["sigmoid", "softmax"]
_NARROWEST = 16
"""The least hidden width of WeightNet and ODConv, in the code of the authors of both."""


def _bank(experts: int, out_channels: int, per_group: int, size: Sizes) -> nn.Parameter:
    """Expert kernels (experts, D_out, N, K_h, K_w), each initialised like a convolution's."""
    bank = torch.empty(experts, out_channels, per_group, *size)
    for kernel in bank:
        nn.init.kaiming_uniform_(kernel, a=math.sqrt(5))
    return nn.Parameter(bank)


def mixture(weights: Tensor, bank: Tensor) -> Tensor:
    """Σ_e weights[b, e] · bank[e]: (B, D_out, N, K_h, K_w)."""
    return (weights @ bank.flatten(1)).unflatten(1, bank.shape[1:])


class MixtureFunction(KernelFunction):
    """A mixture of expert kernels, weighted by the pooled input.

    `routing="sigmoid"` is CondConv (Yang et al., NeurIPS 2019): a linear layer, weights in 0 .. 1.
    `routing="softmax"` is DyConv (Chen et al., CVPR 2020): a bottleneck of a quarter, weights that
    sum to one, softened by `temperature` (30 there at the start of training, annealed to 1).
    """

    scope = "image"

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Pair,
        experts: int = 4,
        routing: Routing = "sigmoid",
        groups: int = 1,
        temperature: float = 1.0,
    ) -> None:
        super().__init__()
        if routing not in get_args(Routing):
            raise unknown_name("routing", routing, get_args(Routing))
        if experts < 1 or temperature <= 0:
            raise OptionError(
                "Expected at least 1 expert and a positive temperature but got "
                f"experts={experts}, temperature={temperature}."
            )
        check_groups(in_channels, groups)
        check_groups(out_channels, groups)
        self.groups = groups
        self.routing = routing
        self.temperature = temperature
        size = Window.of(kernel_size).kernel_size
        self.bank = _bank(experts, out_channels, in_channels // groups, size)
        hidden = max(1, in_channels // 4)
        self.route = (
            nn.Sequential(nn.Linear(in_channels, experts))
            if routing == "sigmoid"
            else nn.Sequential(
                nn.Linear(in_channels, hidden), nn.ReLU(), nn.Linear(hidden, experts)
            )
        )

    def forward(self, x: Tensor, window: Window) -> SampleKernel:
        scores = self.route(x.mean((2, 3)))
        weights = (
            scores.sigmoid()
            if self.routing == "sigmoid"
            else (scores / self.temperature).softmax(1)
        )
        return SampleKernel(mixture(weights, self.bank), window, self.groups)


class DynamicConv2d(Operator):
    """Convolution with a mixture of expert kernels: CondConv or DyConv."""

    scope = "image"

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Pair = 3,
        stride: int | Pair = 1,
        padding: int | Pair = 0,
        dilation: int | Pair = 1,
        groups: int = 1,
        bias: bool = False,
        experts: int = 4,
        routing: Routing = "sigmoid",
        temperature: float = 1.0,
    ) -> None:
        window = Window.of(kernel_size, stride, dilation, padding)
        super().__init__(in_channels, out_channels, window, bias=bias)
        self.function = MixtureFunction(
            in_channels, out_channels, kernel_size, experts, routing, groups, temperature
        )

    def kernel(self, x: Tensor) -> SampleKernel:
        return self.function(x, self.window)


class WeightNetFunction(KernelFunction):
    """WeightNet (Ma et al., ECCV 2020): a grouped linear layer writes the kernel.

    The pooled input gives M·D_out activations, of which M/G write each 1/G of an output channel's
    kernel. M = 2 and G = 2 there, and the hidden width is D_in/16, at least 16.
    """

    scope = "image"

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Pair,
        multiplier: int = 2,
        parts: int = 2,
        reduction: int = 16,
    ) -> None:
        super().__init__()
        size = Window.of(kernel_size).kernel_size
        per_channel = in_channels * size[0] * size[1]
        if parts < 1 or multiplier % parts or per_channel % parts:
            raise OptionError(
                f"Expected parts to divide multiplier={multiplier} and the {per_channel} weights "
                f"of an output channel but got parts={parts}."
            )
        self.shape = (out_channels, in_channels, *size)
        hidden = max(_NARROWEST, in_channels // reduction)
        self.squeeze = nn.Linear(in_channels, hidden)
        self.activate = nn.Linear(hidden, multiplier * out_channels)
        self.write = nn.Conv2d(
            multiplier * out_channels,
            out_channels * per_channel,
            1,
            groups=parts * out_channels,
            bias=False,
        )

    def forward(self, x: Tensor, window: Window) -> SampleKernel:
        activation = self.activate(self.squeeze(x.mean((2, 3)))).sigmoid()
        weight = self.write(activation[:, :, None, None]).view(-1, *self.shape)
        return SampleKernel(weight, window)


class ODConvFunction(KernelFunction):
    """Omni-dimensional dynamic convolution (Li et al., ICLR 2022).

    W = a_filter[m] · a_space[u,v] · a_channel[c] · Σ_e a_expert[e] · bank[e]. The spatial attention
    is shared by the experts, so the mixture is one matrix product; the authors' code materialises
    every expert for every input instead. Their bottleneck: D_in/16, at least 16, batch norm, ReLU.
    As in their code, a 1×1 kernel has no spatial attention, a depthwise one no filter attention,
    and a single kernel no attention among experts.
    """

    scope = "image"

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Pair,
        experts: int = 4,
        groups: int = 1,
        reduction: int = 16,
        temperature: float = 1.0,
    ) -> None:
        super().__init__()
        check_groups(in_channels, groups)
        check_groups(out_channels, groups)
        self.groups = groups
        self.temperature = temperature
        size = Window.of(kernel_size).kernel_size
        self.bank = _bank(experts, out_channels, in_channels // groups, size)
        hidden = max(_NARROWEST, in_channels // reduction)
        self.squeeze = nn.Sequential(
            nn.Conv2d(in_channels, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.ReLU()
        )
        # One filter per channel is scaled by the channel's attention already, and a window of one
        # pixel by the filter's: a second factor would only be a product of two sigmoids.
        depthwise = groups == in_channels == out_channels
        taps = size[0] * size[1]
        self.filter = None if depthwise else nn.Linear(hidden, out_channels)
        self.channel = nn.Linear(hidden, in_channels)
        self.space = nn.Linear(hidden, taps) if taps > 1 else None
        self.expert = nn.Linear(hidden, experts) if experts > 1 else None

    def forward(self, x: Tensor, window: Window) -> SampleKernel:
        hidden = self.squeeze(F.adaptive_avg_pool2d(x, 1)).flatten(1)
        weight = self._mixed(hidden)
        channels = self._attention(self.channel, hidden)
        # Output channel m reads the input channels of its own group only.
        factor = channels.unflatten(1, (self.groups, -1)).repeat_interleave(
            weight.shape[1] // self.groups, dim=1
        )
        if self.filter is not None:
            factor = factor * self._attention(self.filter, hidden)[:, :, None]
        weight = weight * factor[..., None, None]
        if self.space is not None:
            space = self._attention(self.space, hidden).unflatten(1, window.kernel_size)
            weight = weight * space[:, None, None]
        return SampleKernel(weight, window, self.groups)

    def _attention(self, scores: nn.Linear, hidden: Tensor) -> Tensor:
        return (scores(hidden) / self.temperature).sigmoid()

    def _mixed(self, hidden: Tensor) -> Tensor:
        """The experts' mean kernel for each image (B, D_out, N, K_h, K_w)."""
        if self.expert is None:
            return self.bank.expand(len(hidden), -1, -1, -1, -1)
        return mixture((self.expert(hidden) / self.temperature).softmax(1), self.bank)
