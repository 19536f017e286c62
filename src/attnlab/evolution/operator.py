"""What a feature operator is: a kernel function and the aggregation that its form implies.

Write a new operator by subclassing `Operator` and returning a kernel form from `kernel(x)`, or give
`EvolutionConv2d` a kernel function.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from attnlab._checked import check_whole
from attnlab._errors import InputError, OptionError
from attnlab.evolution.forms import Kernel
from attnlab.evolution.window import Pair, Window

Scope = Literal["none", "pixel", "window", "image"]
"""Which pixels the kernel function looks at to make the kernel of one position."""


class Operator(nn.Module, ABC):
    """A feature operator in Evolution form: y = Ev(F(x), x) + bias."""

    scope: ClassVar[Scope]

    def __init__(
        self, in_channels: int, out_channels: int, window: Window, *, bias: bool = False
    ) -> None:
        super().__init__()
        check_whole("in_channels", in_channels)
        check_whole("out_channels", out_channels)
        if in_channels < 1 or out_channels < 1:
            raise OptionError(
                "Expected at least 1 input and 1 output channel but got "
                f"{in_channels} and {out_channels}."
            )
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.window = window
        self.bias = nn.Parameter(torch.zeros(out_channels)) if bias else None

    @abstractmethod
    def kernel(self, x: Tensor) -> Kernel:
        """F(x): the Evolution kernel of `x` in factored form."""

    def forward(self, x: Tensor) -> Tensor:
        axes = self.window.axes
        if x.dim() != 2 + axes or x.shape[1] != self.in_channels:
            places = ("L", "H, W", "T, H, W")[axes - 1]
            raise InputError(
                f"{type(self).__name__} expected x of shape (B, {self.in_channels}, {places}) but "
                f"got {tuple(x.shape)}."
            )
        out = self.kernel(x).aggregate(x)
        return out if self.bias is None else out + self.bias[(..., *(None,) * axes)]

    def extra_repr(self) -> str:
        size, stride, dilation, _ = self.window
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={size}"
        if max(stride) > 1:
            text += f", stride={stride}"
        return text if max(dilation) == 1 else f"{text}, dilation={dilation}"


class KernelFunction(nn.Module, ABC):
    """An Evolution function F, apart from the layer that uses it."""

    scope: ClassVar[Scope]

    @abstractmethod
    def forward(self, x: Tensor, window: Window) -> Kernel:
        """The kernel of `x` for `window`."""


class EvolutionConv2d(Operator):
    """The layer for any kernel function: `EvolutionConv2d(16, 32, 3, function, padding=1)`."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Pair,
        function: KernelFunction,
        *,
        stride: int | Pair = 1,
        padding: int | Pair = 0,
        dilation: int | Pair = 1,
        bias: bool = False,
    ) -> None:
        window = Window.of(kernel_size, stride, dilation, padding)
        super().__init__(in_channels, out_channels, window, bias=bias)
        if not isinstance(function, KernelFunction):
            raise OptionError(
                "Expected function to be a KernelFunction, which makes the kernel of its input, "
                f"such as ODConvFunction({in_channels}, {out_channels}, {kernel_size}), but got "
                f"{function!r}. Write your own as a subclass of attnlab.evolution.KernelFunction."
            )
        self.function = function

    def kernel(self, x: Tensor) -> Kernel:
        made = self.function(x, self.window)
        if not isinstance(made, Kernel):
            raise InputError(
                f"Expected {type(self.function).__name__} to return a kernel form, such as "
                f"SampleKernel, but got {type(made).__name__}."
            )
        return made
