"""`spanned_av` on the native kernels.

Maps are made in the kernel, a few rows at a time. Their gradients, and the maps of videos, lie in a
buffer for a few inputs: one that is used again costs no fresh pages, as those of a batch would.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from attnlab.evolution.native.implementation import Native

_BUFFER_BYTES = 5 * 2**19
"""Larger buffers were slower. But every thread has an input to work on."""


class _Images:
    """Maps of some images: as matrices (images, groups·taps, pixels), and as `av` takes them."""

    def __init__(self, features: Tensor, weight: Tensor, groups: int) -> None:
        size = features.shape[2:]
        one = weight.shape[0] * size.numel() * weight.element_size()
        self.count = min(len(features), max(torch.get_num_threads(), _BUFFER_BYTES // one, 1))
        self.matrices = weight.new_empty(self.count, weight.shape[0], size.numel())
        self.maps = self.matrices.unflatten(2, size).unflatten(1, (groups, -1))

    def span(self, flat: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The maps of weight · flat (images, D, pixels) + bias."""
        count = len(flat)
        matrices, weights = self.matrices[:count], weight.expand(count, -1, -1)
        if bias is None:
            torch.bmm(weights, flat, out=matrices)
        else:
            torch.baddbmm(bias.unsqueeze(1), weights, flat, out=matrices)
        return self.maps[:count]


def forward(
    native: Native,
    features: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    groups: int,
    window: list[int],
) -> Tensor:
    out = x.new_empty(*x.shape[:2], *features.shape[2:])
    if features.dim() < 5:
        native.spanned_into("spanned_av", out, features, x, weight, bias, groups, window)
        return out
    images = _Images(features, weight, groups)
    batches = (t.split(images.count) for t in (features.flatten(2), x, out))
    for flat, at, to in zip(*batches, strict=True):
        native.av_into(to, images.span(flat, weight, bias), at, window)
    return out


def backward(
    native: Native,
    grad: Tensor,
    features: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    groups: int,
    window: list[int],
) -> list[Tensor]:
    """Gradients of features, x, weight and, if there is one, bias."""
    to_features, to_x = features.new_empty(features.shape), x.new_empty(x.shape)
    compute = torch.promote_types(weight.dtype, torch.float32)
    to_weight = torch.zeros(weight.shape, dtype=compute)
    to_bias = torch.zeros(weight.shape[0], dtype=compute)
    made = features.dim() < 5
    if made:
        native.spanned_into("spanned_sc", to_x, features, grad, weight, bias, groups, window)
    images = _Images(features, weight, groups)
    transposed = weight.t()
    operands = (features.flatten(2), x, grad, to_features.flatten(2), to_x)
    batches = (t.split(images.count) for t in operands)
    for flat, at, incoming, flat_to, to in zip(*batches, strict=True):
        matrices, maps = images.matrices[: len(flat)], images.maps[: len(flat)]
        if not made:
            native.sc_into(to, images.span(flat, weight, bias), incoming, window)
        native.qk_into(maps, incoming, at, window)
        torch.bmm(transposed.expand(len(flat), -1, -1), matrices, out=flat_to)
        for matrix, one in zip(matrices, flat, strict=True):
            if compute == weight.dtype:
                to_weight.addmm_(matrix, one.t())
            else:
                to_weight += torch.mm(matrix, one.t())
            to_bias += matrix.sum(1, dtype=compute)
    found = [to_features, to_x, to_weight.to(weight.dtype)]
    return found if bias is None else [*found, to_bias.to(bias.dtype)]
