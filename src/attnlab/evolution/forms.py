"""The factored forms of an Evolution kernel, and the aggregation that fits each.

A kernel function never writes W[i,j,u,v,n,m] out. It returns one of these forms, which says over
which axes the kernel varies, aggregates without the K² copies of the input, and can write W out
(`dense`) for the reference formula at small sizes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab._errors import InputError
from attnlab.evolution._implementation import SpanCall
from attnlab.evolution.attention import (
    Boundary,
    local_attention,
    local_attention_maps,
    packed_local_attention,
)
from attnlab.evolution.primitives import av, spanned_av
from attnlab.evolution.window import Window

Axis = Literal["space", "input channel", "output channel", "input"]
"""What a kernel can vary over; "input" means that it depends on the image."""


def pointwise(x: Tensor, weight: Tensor) -> Tensor:
    """The 1×1 convolution of (B, C, *size) with a matrix (out, C)."""
    convolution = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}[x.dim()]
    return convolution(x, weight[(..., *(None,) * (x.dim() - 2))])


class Kernel(ABC):
    """An Evolution kernel in factored form."""

    window: Window

    @property
    @abstractmethod
    def varies(self) -> frozenset[Axis]:
        """The axes over which the kernel varies."""

    @property
    @abstractmethod
    def groups(self) -> int:
        """G of the Evolution formula: D_in for a depthwise kernel."""

    @abstractmethod
    def aggregate(self, x: Tensor) -> Tensor:
        """The operator's output, without the constant part (biases)."""

    @abstractmethod
    def dense(self, x: Tensor) -> Tensor:
        """W as (B or 1, H_out, W_out, K_h, K_w, D_in/G, D_out)."""


@dataclass(frozen=True)
class SharedKernel(Kernel):
    """One kernel for all positions and inputs: convolution. weight (D_out, D_in/G, K_h, K_w)."""

    weight: Tensor
    window: Window
    groups: int = 1
    varies = frozenset[Axis]({"input channel", "output channel"})

    def aggregate(self, x: Tensor) -> Tensor:
        _, stride, dilation, padding = self.window
        return F.conv2d(x, self.weight, None, stride, padding, dilation, self.groups)

    def dense(self, x: Tensor) -> Tensor:
        size = self.window.output_size(x.shape[2], x.shape[3])
        return self.weight.permute(2, 3, 1, 0).expand(1, *size, -1, -1, -1, -1)


@dataclass(frozen=True)
class SampleKernel(Kernel):
    """One kernel per input, shared over space: dynamic convolution.

    weight (B, D_out, D_in/G, K_h, K_w). The batch becomes groups of one convolution.
    """

    weight: Tensor
    window: Window
    groups: int = 1
    varies = frozenset[Axis]({"input channel", "output channel", "input"})

    def aggregate(self, x: Tensor) -> Tensor:
        if self.weight.shape[0] != x.shape[0]:
            raise InputError(
                f"Expected one kernel for each of {x.shape[0]} inputs but got "
                f"{self.weight.shape[0]}."
            )
        _, stride, dilation, padding = self.window
        weight, merged = self.weight.flatten(0, 1), x.flatten(0, 1).unsqueeze(0)
        out = F.conv2d(merged, weight, None, stride, padding, dilation, x.shape[0] * self.groups)
        return out.squeeze(0).unflatten(0, (x.shape[0], -1))

    def dense(self, x: Tensor) -> Tensor:
        size = self.window.output_size(x.shape[2], x.shape[3])
        return self.weight.permute(0, 3, 4, 2, 1)[:, None, None].expand(-1, *size, -1, -1, -1, -1)


@dataclass(frozen=True)
class MapKernel(Kernel):
    """One map per position and group of channels: involution.

    maps (B, G, K_h·K_w, H_out, W_out). With G = D_in the kernel is specific to space and channel.
    `mix` (D_out, D_in), if given, follows as a 1×1 convolution and is part of the kernel:
    W = S^c[i,j,u,v] · mix[m,c], the paper's D_in maps.
    """

    maps: Tensor
    window: Window
    channels: int
    mix: Tensor | None = None

    @property
    def varies(self) -> frozenset[Axis]:
        axes: set[Axis] = {"space", "input"}
        if self.mix is not None:
            axes |= {"input channel", "output channel"}
        elif self.maps.shape[1] > 1:
            axes |= {"output channel"}
        return frozenset(axes)

    @property
    def groups(self) -> int:
        return self.channels if self.mix is None else 1

    def aggregate(self, x: Tensor) -> Tensor:
        out = av(self.maps, x, self.window)
        return out if self.mix is None else pointwise(out, self.mix)

    def dense(self, x: Tensor) -> Tensor:
        per_channel = self.maps.repeat_interleave(x.shape[1] // self.maps.shape[1], dim=1)
        per_channel = _positions_first(per_channel, self.window)
        if self.mix is None:
            return per_channel.unsqueeze(-2)
        return per_channel.unsqueeze(-1) * self.mix.t()


@dataclass(frozen=True)
class SpanKernel(Kernel):
    """A `MapKernel` whose maps are a 1×1 convolution of features: involution's own form.

    features (B, D, H_out, W_out), weight (G·K_h·K_w, D), bias (G·K_h·K_w). The aggregation keeps
    no maps for its backward pass; `maps` makes them.
    """

    features: Tensor
    weight: Tensor
    bias: Tensor | None
    map_groups: int
    window: Window
    channels: int

    @property
    def maps(self) -> Tensor:
        """(B, G, K_h·K_w, H_out, W_out)."""
        call = SpanCall(
            self.features,
            self.features,  # what is aggregated does not decide the maps
            self.weight,
            self.bias,
            self.map_groups,
            self.window.flat(),
        )
        return call.maps()

    @property
    def varies(self) -> frozenset[Axis]:
        axes: set[Axis] = {"space", "input"}
        return frozenset(axes | {"output channel"} if self.map_groups > 1 else axes)

    @property
    def groups(self) -> int:
        return self.channels

    def aggregate(self, x: Tensor) -> Tensor:
        return spanned_av(self.features, x, self.weight, self.bias, self.map_groups, self.window)

    def dense(self, x: Tensor) -> Tensor:
        return MapKernel(self.maps, self.window, self.channels).dense(x)


@dataclass(frozen=True)
class AttentionKernel(Kernel):
    """Score map × projections: local self-attention, without the maps in memory.

        W[i,j,u,v,c,m] = Σ_p S^p[i,j,u,v] · Σ_d W_V[p·D_h + d, c] · W_O[m, p·D_h + d]

    `value` is W_V x, or x itself where `value_weight` is None; an `output_weight` of None is the
    identity. Weights are matrices (out, in). Heads of size 1 make the kernel specific to every
    channel. `packed`, if query, key and value are its thirds, saves joining their gradients.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    heads: int
    window: Window
    value_weight: Tensor | None = None
    output_weight: Tensor | None = None
    bias: Tensor | None = None
    relative: tuple[Tensor, ...] | None = None
    scale: float | None = None
    boundary: Boundary = "mask"
    packed: Tensor | None = None
    groups = 1
    varies = frozenset[Axis]({"space", "input channel", "output channel", "input"})

    def aggregate(self, x: Tensor) -> Tensor:  # noqa: ARG002  (value already is a function of x)
        if self.packed is None:
            attend = partial(local_attention, self.query, self.key, self.value)
        else:
            attend = partial(packed_local_attention, self.packed)
        out = attend(
            heads=self.heads,
            window=self.window,
            scale=self.scale,
            bias=self.bias,
            relative=self.relative,
            boundary=self.boundary,
        )
        if self.output_weight is None:
            return out
        return pointwise(out, self.output_weight)

    def maps(self) -> Tensor:
        """S as (B, heads, K_h·K_w, H_out, W_out)."""
        depth = self.query.shape[1] // self.heads
        return local_attention_maps(
            self.query,
            self.key,
            self.heads,
            self.window,
            scale=depth**-0.5 if self.scale is None else self.scale,
            bias=self.bias,
            relative=self.relative,
            boundary=self.boundary,
        )

    def dense(self, x: Tensor) -> Tensor:
        width = self.value.shape[1]
        identity = torch.eye(width, dtype=x.dtype, device=x.device)
        value = identity if self.value_weight is None else self.value_weight
        output = identity if self.output_weight is None else self.output_weight
        per_head = torch.einsum(
            "pdc,mpd->pcm",
            value.unflatten(0, (self.heads, -1)),
            output.unflatten(1, (self.heads, -1)),
        )
        maps = _positions_first(self.maps(), self.window)
        return torch.einsum("b...p,pcm->b...cm", maps, per_head)


def _positions_first(maps: Tensor, window: Window) -> Tensor:
    """(B, G, taps, *out) as (B, *out, *kernel, G)."""
    taps, places = range(2, 2 + window.axes), range(2 + window.axes, 2 + 2 * window.axes)
    return maps.unflatten(2, window.kernel_size).permute(0, *places, *taps, 1)


@dataclass(frozen=True)
class DenseKernel(Kernel):
    """W written out, (B or 1, H_out, W_out, K_h, K_w, D_in/G, D_out): any kernel, at any price."""

    weight: Tensor
    window: Window
    groups: int = 1
    varies = frozenset[Axis]({"space", "input channel", "output channel", "input"})

    def aggregate(self, x: Tensor) -> Tensor:
        from attnlab.evolution.as_evolution import evolve

        _, stride, dilation, padding = self.window
        return evolve(
            x,
            self.weight,
            groups=self.groups,
            stride=stride,
            dilation=dilation,
            padding=padding,
        )

    def dense(self, x: Tensor) -> Tensor:  # noqa: ARG002  (already is)
        return self.weight


@dataclass(frozen=True)
class SumKernel(Kernel):
    """Σ_p coefficients[p] · W_p: by linearity a sum of operators is one Evolution kernel."""

    parts: tuple[Kernel, ...]
    coefficients: Tensor

    def __post_init__(self) -> None:
        windows = {part.window for part in self.parts}
        groups = {part.groups for part in self.parts}
        if len(windows) != 1 or len(groups) != 1 or len(self.coefficients) != len(self.parts):
            raise InputError(
                "Expected kernels of one window and one number of groups, and a coefficient for "
                f"each, but got {len(windows)} windows, groups {sorted(groups)} and "
                f"{len(self.coefficients)} coefficients for {len(self.parts)} kernels."
            )

    @property
    def window(self) -> Window:  # type: ignore[override]
        return self.parts[0].window

    @property
    def varies(self) -> frozenset[Axis]:
        return frozenset[Axis]().union(*(part.varies for part in self.parts))

    @property
    def groups(self) -> int:
        return self.parts[0].groups

    def aggregate(self, x: Tensor) -> Tensor:
        # Each part by its own fast form: W of the sum has K² D_in D_out numbers at every pixel.
        pairs = zip(self.coefficients, self.parts, strict=True)
        return torch.stack([own * part.aggregate(x) for own, part in pairs]).sum(0)

    def dense(self, x: Tensor) -> Tensor:
        pairs = zip(self.coefficients, self.parts, strict=True)
        first, *others = [own * part.dense(x) for own, part in pairs]
        return sum(others, first)
