"""The position terms of attention as the kernels take them: one number and one vector per tap."""

from __future__ import annotations

import torch
from torch import Tensor

from attnlab.evolution._implementation import AttentionCall
from attnlab.evolution.window import Window


class Positions:
    """`bias` (heads, taps) and `embedding` (heads, taps, depth), with room for their gradients.

    The embedding of a tap joins those of its offsets along the axes. Sums are per image and head;
    `stats` says where and in which type they are made. If a term is missing, a tensor that is not
    read stands in for it.
    """

    def __init__(self, call: AttentionCall, stats: Tensor) -> None:
        bias, relative, window = call.bias, call.relative, call.shape
        self.has_bias, self.has_relative = bias is not None, bool(relative)
        self._given = call.positions
        self._window = window
        self.bias = stats if bias is None else bias.to(stats.dtype).contiguous()
        self.embedding = self.embedding_sums = self.bias_sums = stats
        batch = stats.shape[0]
        if bias is not None:
            self.bias_sums = stats.new_empty(batch, *bias.shape)
        if relative:
            self.embedding = _joined(relative, window).to(stats.dtype).contiguous()
            self.embedding_sums = stats.new_empty(batch, *self.embedding.shape)

    @property
    def given(self) -> bool:
        """Whether any of the position terms is given."""
        return bool(self._given)

    def gradients(self) -> list[Tensor]:
        """Return the gradients of the bias, if there is one, and of the embeddings, from the
        sums."""
        found = [self.bias_sums.sum(0)] if self.has_bias else []
        if self.has_relative:
            found += _apart(self.embedding_sums.sum(0), self._window)
        return [sums.to(t.dtype) for sums, t in zip(found, self._given, strict=True)]


def _joined(relative: list[Tensor], window: Window) -> Tensor:
    """(heads, depth / axes, K) of each axis as (heads, taps, depth)."""
    pieces = []
    for axis, embedding in enumerate(relative):
        shape = [1] * window.axes
        shape[axis] = embedding.shape[2]
        along = embedding.transpose(1, 2).unflatten(1, shape)
        pieces.append(along.expand(-1, *window.kernel_size, -1))
    return torch.cat(pieces, -1).flatten(1, window.axes)


def _apart(gradient: Tensor, window: Window) -> list[Tensor]:
    """Take the gradient apart: the adjoint of `_joined`."""
    pieces = gradient.unflatten(1, window.kernel_size).chunk(window.axes, dim=-1)
    found = []
    for axis, piece in enumerate(pieces):
        others = [1 + other for other in range(window.axes) if other != axis]
        found.append((piece.sum(others) if others else piece).transpose(1, 2))
    return found
