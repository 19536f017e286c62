"""`spanned_av` on the native kernels: image by image, in one buffer for the maps of an image.

A buffer that is used again stays in cache, and costs no fresh pages as the maps of a batch do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from attnlab.evolution.native.implementation import Native


class _Image:
    """The maps of one image: as a matrix (groups·taps, pixels), and as `av` takes them."""

    def __init__(self, features: Tensor, weight: Tensor, groups: int) -> None:
        size = features.shape[2:]
        self.matrix = weight.new_empty(weight.shape[0], size.numel())
        self.maps = self.matrix.view(1, groups, -1, *size)

    def span(self, features: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Fill with weight · features (D, *out) + bias."""
        flat = features.flatten(1)
        if bias is None:
            torch.mm(weight, flat, out=self.matrix)
        else:
            torch.addmm(bias.unsqueeze(1), weight, flat, out=self.matrix)
        return self.maps


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
    image = _Image(features, weight, groups)
    for one, at, to in zip(features, x.split(1), out.split(1), strict=True):
        native.av_into(to, image.span(one, weight, bias), at, window)
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
    image = _Image(features, weight, groups)
    for i, (one, at, incoming) in enumerate(zip(features, x.split(1), grad.split(1), strict=True)):
        native.sc_into(to_x[i : i + 1], image.span(one, weight, bias), incoming, window)
        native.qk_into(image.maps, incoming, at, window)
        flat = one.flatten(1)
        torch.mm(weight.t(), image.matrix, out=to_features[i].view(flat.shape))
        if compute == weight.dtype:
            to_weight.addmm_(image.matrix, flat.t())
        else:
            to_weight += torch.mm(image.matrix, flat.t())
        to_bias += image.matrix.sum(1, dtype=compute)
    found = [to_features, to_x, to_weight.to(weight.dtype)]
    return found if bias is None else [*found, to_bias.to(bias.dtype)]
