"""Local self-attention as layers: one map per head, or one map per channel.

`LocalAttention` is stand-alone self-attention (Ramachandran et al., NeurIPS 2019).
Queries, keys and values are 1×1 convolutions without bias, as there. `positional`:

* None: permutation-equivariant within the window;
* "absolute": a sinusoidal encoding (no parameters, any map size) added to what queries and keys
  see; values see x alone, which is what makes the layer an Evolution of x (Eq. 6 of the paper);
* "relative": offset embeddings per head and axis, each added to the keys of its part of the
  channels (of an image: rows and columns, half each);
* "transformer-xl": a learned projection of sines and cosines of the offset in their place, and two
  learned vectors per head, one beside the query for keys and one for positions.

`ChannelAttention2d` is the paper's new operator: one attention map per channel, so specific to
space and to channel. "D_in attention score maps" (§3.4) can mean two operators:

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

import math
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor, nn

from attnlab._errors import OptionError, unknown_name
from attnlab.evolution.attention import Boundary
from attnlab.evolution.forms import AttentionKernel, pointwise
from attnlab.evolution.operator import Operator
from attnlab.evolution.transformer_xl import TransformerXLPositions
from attnlab.evolution.window import Pair, Sizes, Window, every

Positional = Literal["absolute", "relative", "transformer-xl"]


_CONVOLUTIONS: dict[int, type[nn.Conv1d | nn.Conv2d | nn.Conv3d]] = {
    1: nn.Conv1d,
    2: nn.Conv2d,
    3: nn.Conv3d,
}


def sinusoidal_encoding(channels: int, size: Sizes, like: Tensor) -> Tensor:
    """(channels, *size): sines and cosines of the place along each axis, in a part of the channels.

    The parts are equal, the first ones larger by one where that does not go.
    """
    parts = []
    for axis, length in enumerate(size):
        count = (channels - axis + len(size) - 1) // len(size)
        index = torch.arange(count, device=like.device)
        rate = torch.exp(-math.log(10000.0) * (2 * (index // 2)) / max(count, 1))
        angle = rate[:, None] * torch.arange(length, device=like.device)
        wave = torch.where((index % 2 == 0)[:, None], angle.sin(), angle.cos())
        shape = [1] * len(size)
        shape[axis] = length
        parts.append(wave.view(count, *shape).expand(count, *size))
    return torch.cat(parts).to(like.dtype)


class LocalAttention(Operator):
    """What the layers for sequences, images and videos have in common.

    `projection=True` adds the output projection W_O of multi-head attention. `boundary` says what
    the softmax does with pixels outside the image: leave them out ("mask") or keep them as zeros.
    """

    scope = "window"
    axes: ClassVar[int]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sizes = 7,
        heads: int = 8,
        positional: Positional | None = None,
        stride: int | Sizes = 1,
        dilation: int | Sizes = 1,
        boundary: Boundary = "mask",
        projection: bool = False,
        bias: bool = False,
    ) -> None:
        window = Window.centred(kernel_size, stride, dilation, self.axes)
        if window.axes != self.axes:
            raise OptionError(
                f"Expected kernel_size to be one number or {self.axes} but got {kernel_size}."
            )
        super().__init__(in_channels, out_channels, window, bias=bias)
        if positional is not None and positional not in get_args(Positional):
            raise unknown_name("positional encoding", positional, get_args(Positional))
        if boundary not in get_args(Boundary):
            raise unknown_name("boundary", boundary, get_args(Boundary))
        if heads < 1 or out_channels % heads:
            raise OptionError(
                f"Expected heads to divide the {out_channels} output channels but got {heads}."
            )
        self.heads = heads
        self.positional = positional
        self.boundary = boundary
        convolution = _CONVOLUTIONS[self.axes]
        self.query_key_value = convolution(in_channels, 3 * out_channels, 1, bias=False)
        self.output = convolution(out_channels, out_channels, 1, bias=False) if projection else None
        self.relative = self._offset_embeddings() if positional == "relative" else None
        self.positions = (
            TransformerXLPositions(heads, self._depth_for_offsets(), window)
            if positional == "transformer-xl"
            else None
        )

    def _depth_for_offsets(self) -> int:
        """Channels per head, if they can be split among the axes."""
        depth = self.out_channels // self.heads
        if depth % self.axes:
            wanted = "an even number of" if self.axes == 2 else f"a multiple of {self.axes}"
            raise OptionError(
                f"Expected {wanted} channels per head for the relative encoding but got "
                f"{depth} ({self.out_channels} channels, {self.heads} heads)."
            )
        return depth

    def _offset_embeddings(self) -> nn.ParameterList:
        """One embedding per head and offset along each axis, for its part of the channels."""
        depth = self._depth_for_offsets()
        return nn.ParameterList(
            nn.Parameter(torch.randn(self.heads, depth // self.axes, size) * depth**-0.5)
            for size in self.window.kernel_size
        )

    def kernel(self, x: Tensor) -> AttentionKernel:
        query, key, value, packed = self._project(x)
        weight = self.query_key_value.weight.flatten(1)
        relative, bias = None if self.relative is None else tuple(self.relative), None
        if self.positions is not None:
            relative = self.positions.embeddings()
            query, bias, packed = self.positions.query(query), self.positions.bias(relative), None
        return AttentionKernel(
            query,
            key,
            value,
            self.heads,
            self.window,
            value_weight=weight[2 * self.out_channels :],
            output_weight=None if self.output is None else self.output.weight.flatten(1),
            bias=bias,
            relative=relative,
            boundary=self.boundary,
            packed=packed,
        )

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        weight, width = self.query_key_value.weight.flatten(1), self.out_channels
        seen = x
        if self.positional == "absolute":
            seen = x + sinusoidal_encoding(self.in_channels, tuple(x.shape[2:]), x)
        if max(self.window.stride) == 1 and seen is x:
            packed = self.query_key_value(x)
            query, key, value = packed.chunk(3, dim=1)
            return query, key, value, packed
        query = pointwise(every(seen, self.window.stride), weight[:width])
        if seen is x:
            key, value = pointwise(x, weight[width:]).chunk(2, dim=1)
            return query, key, value, None
        key = pointwise(seen, weight[width : 2 * width])
        return query, key, pointwise(x, weight[2 * width :]), None

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, heads={self.heads}, positional={self.positional!r}"


class LocalAttention1d(LocalAttention):
    """Attention over the K neighbours of each element of a sequence (B, C, L)."""

    axes = 1


class LocalAttention2d(LocalAttention):
    """Attention over the K×K window of each pixel; a drop-in for a K×K convolution."""

    axes = 2


class LocalAttention3d(LocalAttention):
    """Attention over the K×K×K window of each pixel of a video (B, C, T, H, W)."""

    axes = 3


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
