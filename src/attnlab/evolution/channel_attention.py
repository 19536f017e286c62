"""The paper's new operator: one attention map per channel, so specific to space and to channel.

"D_in attention score maps" (§3.4) can mean two operators:

* `per="input"`: a map per input channel, on x, then the 1×1 value projection;
  W[i,j,u,v,c,m] = S^c[i,j,u,v] · W_V[m,c]
* `per="output"`: the value projection first, then a map per value channel;
  W[i,j,u,v,c,m] = S^m[i,j,u,v] · W_V[m,c]

The order cannot be swapped. The paper does not say how a map is scored. Ours: the product of a
query and a key that have one number per channel, plus a learned score per channel and tap (without
it a channel could not prefer a direction, and with queries at zero the operator is a depthwise
convolution whose kernel is a softmax).
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from attnlab._errors import unknown_name
from attnlab.evolution.attention import Boundary
from attnlab.evolution.forms import AttentionKernel
from attnlab.evolution.operator import Operator
from attnlab.evolution.window import Pair, Window

Per = Literal["input", "output"]


class ChannelAttention2d(Operator):
    """Local attention with a map for every channel; the maps are never in memory."""

    scope = "window"

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Pair = 7,
        per: Per = "input",
        stride: int | Pair = 1,
        dilation: int | Pair = 1,
        boundary: Boundary = "mask",
        bias: bool = False,
    ) -> None:
        window = Window.centred(kernel_size, stride, dilation)
        super().__init__(in_channels, out_channels, window, bias=bias)
        if per not in get_args(Per):
            raise unknown_name("per", per, get_args(Per))
        if boundary not in get_args(Boundary):
            raise unknown_name("boundary", boundary, get_args(Boundary))
        self.per = per
        self.boundary = boundary
        maps = in_channels if per == "input" else out_channels
        self.query = nn.Conv2d(in_channels, maps, 1, bias=False)
        self.key = nn.Conv2d(in_channels, maps, 1, bias=False)
        self.value = nn.Conv2d(in_channels, out_channels, 1, bias=False)
        self.tap_scores = nn.Parameter(torch.zeros(maps, window.taps))

    def kernel(self, x: Tensor) -> AttentionKernel:
        stride_h, stride_w = self.window.stride
        mix = self.value.weight[:, :, 0, 0]
        on_input = self.per == "input"
        return AttentionKernel(
            self.query(x[:, :, ::stride_h, ::stride_w]),
            self.key(x),
            x if on_input else self.value(x),
            self.tap_scores.shape[0],
            self.window,
            value_weight=None if on_input else mix,
            output_weight=mix if on_input else None,
            bias=self.tap_scores,
            boundary=self.boundary,
        )

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, per={self.per!r}"
