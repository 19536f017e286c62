"""Sums over space, written so that none of them needs a temporary of the size of the map.

`applied` and `in_pieces` serve all functions of this kind: a gradient of one's own at no price
where nobody asks for it, and temporaries that stay in the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from attnlab._types import Features, Maps, Vector


def gradients_wanted() -> bool:
    """Return whether to compute in the form that has a fast gradient. A trace is made with
    gradients and checked without, and must be the same both times."""
    return torch.is_grad_enabled() or torch._C._is_tracing()  # torch.jit asks for scripts as well


def applied(function: type[torch.autograd.Function], *inputs: object) -> Any:
    """`function.apply(*inputs)`; without gradients its forward alone.

    On a small map, getting ready for a gradient takes as long as the arithmetic. A trace takes the
    forward with and without gradients: torch.jit saves no function of Python's, and torch.onnx
    exports none, and the operations in it have gradients of their own.
    """
    if torch.is_grad_enabled() and not torch._C._is_tracing():
        return function.apply(*inputs)
    return function.forward(*inputs)


WHOLE = 2**22
"""Elements up to which nothing is cut: 16 MiB of float32. The C library keeps such a block, so that
the result takes the memory of the temporary; for larger ones it asks the system each time."""
PIECE = 2**20
"""Elements of one piece: 4 MiB of float32."""


def in_pieces(
    compute: Callable[..., tuple[Tensor, ...]], first: Tensor, *others: Tensor
) -> tuple[Tensor, ...]:
    """`compute(first, *others)`, on a CPU a few inputs of the batch at a time.

    A temporary of the size of a large map costs more in page faults than its arithmetic. Compilers
    fuse it away, and a GPU wants one large kernel, so both get the whole batch.
    """
    if first.numel() <= WHOLE or torch.compiler.is_compiling() or first.device.type != "cpu":
        return compute(first, *others)
    inputs = max(1, PIECE * first.shape[0] // first.numel())
    pieces = zip(*(tensor.split(inputs) for tensor in (first, *others)), strict=True)
    results = [compute(*piece) for piece in pieces]
    return tuple(torch.cat(parts) for parts in zip(*results, strict=True))


STRIPS = 4
"""The number of strips of rows into which a large map is cut."""
LARGE_MAP = 2**18
"""Elements of one map: 1 MiB of float32."""
SMALL_WINDOW = 7
"""The side of a channels-last window in pixels up to which torch pools it faster than two means do;
its gradient is slower at any size."""


def pixel_count(features: Tensor) -> int:
    """height · width, or the product of as many spatial axes as there are."""
    count = 1
    for size in features.shape[2:]:
        count = count * size
    return count


def as_map(features: Maps) -> Features:
    """A map of any rank as one of two spatial axes, for what does not look at the arrangement."""
    return features if features.dim() == 4 else features.flatten(2).unsqueeze(-1)


def spatial_mean(features: Maps) -> Vector:
    """The mean of each channel (global average pooling).

    For a gradient sum first, divide after: the gradient of a sum is an expanded view, that of a
    mean is a full copy. Not in float16, where the sum can overflow.
    """
    if not gradients_wanted() or features.dtype == torch.float16:
        if features.dim() == 4 and features.is_contiguous():  # said here: every block comes by
            return features.mean((2, 3))
        return over_space(torch.mean, features)
    return features.sum(dim=tuple(range(2, features.dim()))) / pixel_count(features)


def over_space(reduce: Callable[..., Tensor], features: Maps) -> Vector:
    """`reduce` of each channel over space; `reduce` is the mean or the maximum.

    Down the rows of a large channels-last map each value comes from another page of memory, so that
    strips of rows are more than twice as fast on a CPU.
    """
    if (
        features.numel() > LARGE_MAP * features.shape[0]
        and not torch.compiler.is_compiling()
        and features.shape[2] % STRIPS == 0
        and is_channels_last(features)
    ):
        strips = features.permute(0, 2, 3, 1).unflatten(1, (STRIPS, -1))
        return reduce(reduce(strips, dim=2), dim=(1, 2))
    return reduce(features, dim=tuple(range(2, features.dim())))


def is_channels_last(features: Tensor) -> bool:
    """Return whether the memory is in the order channels last and in no other at the same time."""
    if features.is_contiguous():
        return False
    try:
        return features.is_contiguous(memory_format=torch.channels_last)
    except RuntimeError:  # inside torch.vmap nobody knows the order, and none is better
        return False


def over_axis(reduce: Callable[..., Tensor], features: Features, axis: int) -> Tensor:
    """`reduce(features, dim=axis)`, for one axis of the map, in the memory order of `features`.

    Torch would order the result as if the map were not channels last, and then takes more than ten
    times as long on a CPU.
    """
    if not is_channels_last(features):
        return reduce(features, dim=axis)
    pixels = features.permute(0, 2, 3, 1)
    reduced = reduce(pixels, dim=(axis - 2) % 3 + 1, keepdim=True)
    return reduced.permute(0, 3, 1, 2).squeeze(axis)


def spatial_projection(
    features: Features, basis: Float[Tensor, "functions area"]
) -> Float[Tensor, "batch channels functions"]:
    """The inner product over space of each channel with each basis function, in one product."""
    if is_channels_last(features):
        pixels = features.permute(0, 2, 3, 1).flatten(1, 2)
        return torch.matmul(basis, pixels).transpose(1, 2)
    return torch.matmul(features.flatten(2), basis.t())


def shrink(features: Features, bins: int) -> Features:
    """Average the map to `bins` x `bins` if equal windows tile it; otherwise return it as it is.

    A cheap first step before an adaptive pooling, which does the same to either result.
    """
    height, width = features.shape[2:]
    # An exported graph serves all sizes, so it must not depend on whether this one is divisible.
    if torch.compiler.is_exporting() or height % bins or width % bins:
        return features
    if height == width == bins:
        return features
    if is_channels_last(features):
        if max(height, width) <= SMALL_WINDOW * bins and not gradients_wanted():
            return F.avg_pool2d(features, (height // bins, width // bins))
        pixels = features.permute(0, 2, 3, 1)
        windows = pixels.unflatten(2, (bins, -1)).unflatten(1, (bins, -1))
        return windows.mean(dim=2).mean(dim=3).permute(0, 3, 1, 2)
    windows = features.unflatten(3, (bins, -1)).unflatten(2, (bins, -1))
    return windows.mean(dim=3).mean(dim=4)


def pooling_matrix(cells: int, bins: int, like: Tensor) -> Float[Tensor, "bins cells"]:
    """Adaptive average pooling along one axis as a matrix.

    Bin i covers the cells from floor(i · cells / bins) to ceil((i + 1) · cells / bins). Pooling
    as a matrix can be merged into what follows, and exports to ONNX for any map size.
    """
    index = torch.arange(bins, device=like.device)[:, None]
    first = index * cells // bins
    last = -(-(index + 1) * cells // bins)
    cell = torch.arange(cells, device=like.device)[None, :]
    inside = (cell >= first) & (cell < last)
    return inside.to(like.dtype) / (last - first).to(like.dtype)
