"""Local self-attention as a layer (stand-alone self-attention, Ramachandran et al., NeurIPS 2019).

Queries, keys and values are 1×1 convolutions without bias, as there. `positional`:

* None: permutation-equivariant within the window;
* "absolute": a sinusoidal encoding (no parameters, any map size) added to what queries and keys
  see; values see x alone, which is what makes the layer an Evolution of x (Eq. 6 of the paper);
* "relative": row and column offset embeddings per head, added to the keys of its channel halves.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab._errors import OptionError, unknown_name
from attnlab.evolution.attention import Boundary
from attnlab.evolution.forms import AttentionKernel
from attnlab.evolution.operator import Operator
from attnlab.evolution.window import Pair, Window

Positional = Literal["absolute", "relative"]


def sinusoidal_encoding(channels: int, height: int, width: int, like: Tensor) -> Tensor:
    """(channels, H, W): sines and cosines of the row in the first half, of the column after."""
    row_channels = (channels + 1) // 2
    parts = []
    for count, length, axis in ((row_channels, height, 1), (channels - row_channels, width, 0)):
        index = torch.arange(count, device=like.device)
        rate = torch.exp(-math.log(10000.0) * (2 * (index // 2)) / max(count, 1))
        angle = rate[:, None] * torch.arange(length, device=like.device)
        wave = torch.where((index % 2 == 0)[:, None], angle.sin(), angle.cos())
        parts.append(wave.unsqueeze(1 + axis).expand(count, height, width))
    return torch.cat(parts).to(like.dtype)


class LocalAttention2d(Operator):
    """Attention over the K×K window of each pixel; a drop-in for a K×K convolution.

    `projection=True` adds the output projection W_O of multi-head attention. `boundary` says what
    the softmax does with pixels outside the image: leave them out ("mask") or keep them as zeros.
    """

    scope = "window"

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Pair = 7,
        heads: int = 8,
        positional: Positional | None = None,
        stride: int | Pair = 1,
        dilation: int | Pair = 1,
        boundary: Boundary = "mask",
        projection: bool = False,
        bias: bool = False,
    ) -> None:
        window = Window.centred(kernel_size, stride, dilation)
        super().__init__(in_channels, out_channels, window, bias=bias)
        if positional is not None and positional not in get_args(Positional):
            raise unknown_name("positional encoding", positional, get_args(Positional))
        if boundary not in get_args(Boundary):
            raise unknown_name("boundary", boundary, get_args(Boundary))
        if heads < 1 or out_channels % heads:
            raise OptionError(
                f"Expected heads to divide the {out_channels} output channels but got {heads}."
            )
        depth = out_channels // heads
        self.heads = heads
        self.positional = positional
        self.boundary = boundary
        self.query_key_value = nn.Conv2d(in_channels, 3 * out_channels, 1, bias=False)
        self.output = nn.Conv2d(out_channels, out_channels, 1, bias=False) if projection else None
        self.relative: nn.ParameterList | None = None
        if positional == "relative":
            if depth % 2:
                raise OptionError(
                    "Expected an even number of channels per head for the relative encoding but "
                    f"got {depth} ({out_channels} channels, {heads} heads)."
                )
            self.relative = nn.ParameterList(
                nn.Parameter(torch.randn(heads, depth // 2, size) * depth**-0.5)
                for size in window.kernel_size
            )

    def kernel(self, x: Tensor) -> AttentionKernel:
        query, key, value, packed = self._project(x)
        relative = None if self.relative is None else (self.relative[0], self.relative[1])
        return AttentionKernel(
            query,
            key,
            value,
            self.heads,
            self.window,
            value_weight=self.query_key_value.weight[2 * self.out_channels :, :, 0, 0],
            output_weight=None if self.output is None else self.output.weight[:, :, 0, 0],
            relative=relative,
            boundary=self.boundary,
            packed=packed,
        )

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        weight, width = self.query_key_value.weight, self.out_channels
        stride = self.window.stride
        seen = x
        if self.positional == "absolute":
            seen = x + sinusoidal_encoding(self.in_channels, x.shape[2], x.shape[3], x)
        if stride == (1, 1) and seen is x:
            packed = self.query_key_value(x)
            query, key, value = packed.chunk(3, dim=1)
            return query, key, value, packed
        query = F.conv2d(seen[:, :, :: stride[0], :: stride[1]], weight[:width])
        if seen is x:
            key, value = F.conv2d(x, weight[width:]).chunk(2, dim=1)
            return query, key, value, None
        key = F.conv2d(seen, weight[width : 2 * width])
        return query, key, F.conv2d(x, weight[2 * width :]), None

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, heads={self.heads}, positional={self.positional!r}"
