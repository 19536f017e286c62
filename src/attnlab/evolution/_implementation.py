"""What a kernel library for one kind of device provides: one function per torch operator."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor


class Implementation(ABC):
    """The operators without derivatives. `window` is `Window.flat()`.

    `parts` are query, key and value, or one tensor of which they are the thirds.
    """

    @abstractmethod
    def av(self, maps: Tensor, x: Tensor, window: list[int]) -> Tensor: ...

    @abstractmethod
    def qk(self, q: Tensor, x: Tensor, groups: int, window: list[int]) -> Tensor: ...

    @abstractmethod
    def sc(self, maps: Tensor, y: Tensor, size: list[int], window: list[int]) -> Tensor: ...

    @abstractmethod
    def spanned_av(
        self,
        features: Tensor,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        groups: int,
        window: list[int],
    ) -> Tensor:
        """`av` with maps `weight` (groups·taps, D) times `features` (B, D, *out)."""

    @abstractmethod
    def spanned_av_backward(
        self,
        grad: Tensor,
        features: Tensor,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        groups: int,
        window: list[int],
    ) -> list[Tensor]:
        """Gradients of features, x, weight and, if there is one, bias."""

    @abstractmethod
    def attention(
        self,
        parts: list[Tensor],
        bias: Tensor | None,
        relative: list[Tensor],
        heads: int,
        scale: float,
        mask: bool,
        window: list[int],
    ) -> tuple[Tensor, Tensor]:
        """The output, and the maximum and one over the sum of each softmax: (B, heads, 2, *out)."""

    @abstractmethod
    def attention_backward(
        self,
        grad: Tensor,
        stats: Tensor,
        parts: list[Tensor],
        bias: Tensor | None,
        relative: list[Tensor],
        heads: int,
        scale: float,
        mask: bool,
        window: list[int],
    ) -> list[Tensor]:
        """Gradients of `parts`, of `bias` if there is one, of `relative`; in their dtypes."""


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
