"""Involution (Li et al., CVPR 2021): a kernel per position, shared by the channels of a group.

    maps[:, i, j] = span(ReLU(BN(reduce(x))))[i, j],   y[c, i] = Σ_k maps[g(c), k, i] · x[c, i + k]

As in the authors' networks: 16 channels per group, a bottleneck of a quarter, a bias in `span`; a
strided layer makes its maps from the average-pooled input. Deviation: pooling rounds up, so that an
odd map under stride 2 works (the authors' layer fails there: its maps have ⌊H/2⌋ rows, its output
⌈H/2⌉).

The maps grow with the input, so the output grows with its square: BatchNorm bounds that while it
takes the statistics of the batch, but in eval mode every layer squares a deviation of scale from
the one before. `start="linear"` (ours) begins with maps that do not depend on the input.
"""

from __future__ import annotations

from typing import Literal, get_args

from torch import Tensor, nn
from torch.nn import functional as F

from attnlab._errors import OptionError, unknown_name
from attnlab.evolution.forms import MapKernel, SpanKernel
from attnlab.evolution.operator import Operator
from attnlab.evolution.primitives import av, check_groups
from attnlab.evolution.window import Pair, Window

Start = Literal["paper", "linear"]


def involution2d(
    x: Tensor,
    maps: Tensor,
    kernel_size: int | Pair,
    stride: int | Pair = 1,
    dilation: int | Pair = 1,
) -> Tensor:
    """Aggregate x (B, C, H, W) with maps (B, groups, K_h·K_w, H_out, W_out)."""
    return av(maps, x, Window.centred(kernel_size, stride, dilation))


class Involution2d(Operator):
    """Involution layer; `groups` is channels // 16 (at least 1) unless given.

    `start` is "paper", or "linear": the weight of `span` is zero and its bias random with variance
    1/K², so that the layer begins as a linear map that keeps the scale of its input, and learns how
    its maps depend on that.
    """

    scope = "pixel"

    def __init__(
        self,
        channels: int,
        kernel_size: int | Pair = 7,
        groups: int | None = None,
        reduction: int = 4,
        stride: int | Pair = 1,
        dilation: int | Pair = 1,
        start: Start = "paper",
    ) -> None:
        if start not in get_args(Start):
            raise unknown_name("start", start, get_args(Start))
        super().__init__(channels, channels, Window.centred(kernel_size, stride, dilation))
        self.groups = max(1, channels // 16) if groups is None else groups
        check_groups(channels, self.groups)
        if not 1 <= reduction <= channels:
            raise OptionError(
                f"Expected reduction between 1 and the {channels} channels but got {reduction}."
            )
        hidden = channels // reduction
        self.reduce = nn.Sequential(
            nn.Conv2d(channels, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.ReLU()
        )
        self.span = nn.Conv2d(hidden, self.window.taps * self.groups, 1)
        if start == "linear":
            assert self.span.bias is not None
            nn.init.zeros_(self.span.weight)
            nn.init.normal_(self.span.bias, std=self.window.taps**-0.5)

    def kernel(self, x: Tensor) -> MapKernel | SpanKernel:
        stride = self.window.stride
        # Without padding `count_include_pad` changes nothing, but where it is on, the compiler of
        # torch 2.15 divides the gradient of a last window that overhangs by too much.
        seen = (
            x
            if stride == (1, 1)
            else F.avg_pool2d(x, stride, stride, ceil_mode=True, count_include_pad=False)
        )
        features = self.reduce(seen)
        if not _is_bare(self.span):
            maps = self.span(features).unflatten(1, (self.groups, self.window.taps))
            return MapKernel(maps, self.window, self.in_channels)
        weight = self.span.weight.flatten(1)
        return SpanKernel(
            features, weight, self.span.bias, self.groups, self.window, self.in_channels
        )

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, groups={self.groups}"


def _is_bare(span: nn.Module) -> bool:
    """Whether `span` is what it was built as, so that its weights say all that it does.

    A layer in its place or a hook on it wants to be called.
    """
    hooks = (span._forward_hooks, span._forward_pre_hooks)
    backward_hooks = (span._backward_hooks, span._backward_pre_hooks)
    return type(span) is nn.Conv2d and not any((*hooks, *backward_hooks))
