"""What a kernel library for one kind of device provides: one function per torch operator.

Torch's operators take flat lists of arguments. Here an attention and an aggregation with spanned
maps are one object each, made where an operator is entered and handed on as it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.grad import conv1d_input, conv1d_weight

from attnlab.evolution.window import Window


@dataclass(frozen=True)
class SpanCall:
    """An aggregation of x with maps that are a 1×1 convolution of features, as involution's are.

    The maps are `weight` (groups·taps, D) times `features` (B, D, *out) plus `bias` (groups·taps).
    """

    features: Tensor
    x: Tensor
    weight: Tensor
    bias: Tensor | None
    groups: int
    window: list[int]
    """The numbers of `Window.flat()`."""

    @property
    def tensors(self) -> list[Tensor]:
        """The operands that have a gradient: features, x, weight and, if there is one, bias."""
        return [self.features, self.x, self.weight, *([] if self.bias is None else [self.bias])]

    def maps(self) -> Tensor:
        """Return the maps (B, groups, taps, *out)."""
        maps = F.conv1d(self.features.flatten(2), self.weight.unsqueeze(2), self.bias)
        return maps.unflatten(2, self.features.shape[2:]).unflatten(1, (self.groups, -1))


@dataclass(frozen=True)
class AttentionCall:
    """A local attention: its operands, position terms and settings."""

    parts: list[Tensor]
    """Query, key and value, or one tensor of which they are the thirds."""
    bias: Tensor | None
    """One learned score per head and tap (heads, taps)."""
    relative: list[Tensor]
    """An embedding of the offset along each axis, or nothing."""
    heads: int
    scale: float
    mask: bool
    """Whether the softmax leaves out the pixels outside the image."""
    window: list[int]
    """The numbers of `Window.flat()`."""

    @property
    def positions(self) -> list[Tensor]:
        """The position terms: the bias, if there is one, and the embeddings."""
        return [*([] if self.bias is None else [self.bias]), *self.relative]

    @property
    def shape(self) -> Window:
        """The window that each query looks through."""
        return Window.from_flat(self.window)

    def operands(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return query, key and value."""
        return thirds(self.parts)

    def depth(self) -> int:
        """Return the number of channels of a head, of keys or of values, whichever has more."""
        _, key, value = self.operands()
        return max(key.shape[1], value.shape[1]) // self.heads


class Implementation(ABC):
    """The operators without derivatives. `window` is `Window.flat()`."""

    @abstractmethod
    def av(self, maps: Tensor, x: Tensor, window: list[int]) -> Tensor: ...

    @abstractmethod
    def qk(self, q: Tensor, x: Tensor, groups: int, window: list[int]) -> Tensor: ...

    @abstractmethod
    def sc(self, maps: Tensor, y: Tensor, size: list[int], window: list[int]) -> Tensor: ...

    @abstractmethod
    def spanned_av(self, call: SpanCall) -> Tensor:
        """Return `av` of x with the maps of the call."""

    @abstractmethod
    def spanned_av_backward(self, grad: Tensor, call: SpanCall) -> list[Tensor]:
        """Return the gradients of `call.tensors`."""

    @abstractmethod
    def attention(self, call: AttentionCall) -> tuple[Tensor, Tensor]:
        """Return the output, and the maximum and one over the sum of each softmax, which are
        (B, heads, 2, *out)."""

    @abstractmethod
    def attention_backward(self, grad: Tensor, stats: Tensor, call: AttentionCall) -> list[Tensor]:
        """Return the gradients of `call.parts` and of `call.positions`, in their dtypes."""


def spanned_by_primitives(kernels: Implementation, call: SpanCall) -> Tensor:
    """Compute `spanned_av` for a whole batch, on any kernels of the primitives."""
    return kernels.av(call.maps(), call.x, call.window)


def span_gradients_by_primitives(
    kernels: Implementation, grad: Tensor, call: SpanCall
) -> list[Tensor]:
    """Compute the gradients of `call.tensors`, on any kernels of the primitives."""
    features, weight = call.features, call.weight
    maps = call.maps()
    to_x = kernels.sc(maps, grad, list(call.x.shape[2:]), call.window)
    del maps  # several times as large as the features, and needed no more
    to_maps = kernels.qk(grad, call.x, call.groups, call.window).flatten(1, 2).flatten(2)
    flat, kernel = features.flatten(2), weight.unsqueeze(2)
    to_features = conv1d_input(flat.shape, kernel, to_maps).unflatten(2, features.shape[2:])
    to_weight = conv1d_weight(flat, kernel.shape, to_maps).squeeze(2)
    found = [to_features, to_x, to_weight]
    return found if call.bias is None else [*found, to_maps.sum((0, 2))]


def thirds(parts: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value: `parts` itself, or views of its one tensor."""
    query, key, value = parts if len(parts) == 3 else parts[0].chunk(3, dim=1)
    return query, key, value


def computing(dtype: torch.dtype) -> torch.dtype:
    """The type in which sums are made: float32 for the half types, else the type itself."""
    return torch.promote_types(dtype, torch.float32)


def planes(tensor: Tensor) -> Tensor:
    """`tensor` with contiguous planes; only the distance between batches is free."""
    if tensor.is_contiguous() or (tensor.shape[0] and tensor[0].is_contiguous()):
        return tensor
    return tensor.contiguous()
