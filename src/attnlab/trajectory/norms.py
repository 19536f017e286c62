"""The 2-norms of a step, input by input, reading each feature map as few times as possible."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from attnlab.trajectory import native

# A chunk of both operands and one temporary fit into the second-level cache of current processors,
# so that the four passes over a chunk read main memory once.
CHUNK_BYTES = 1 << 18

Activation = Callable[[Tensor], Tensor]
"""What the network applies to x + f."""


def norm(features: Tensor, inputs: int) -> Tensor:
    """‖features‖ of each of `inputs` inputs, in float32 at least."""
    flat = _rows(features, inputs)
    return torch.linalg.vector_norm(flat, dim=1, dtype=_wide(flat.dtype))


def step_norms(
    shortcut: Tensor, branch: Tensor, inputs: int, activation: Activation | None
) -> tuple[Tensor, Tensor, Tensor]:
    """‖x‖, ‖f‖ and ‖activation(x + f) − x‖ of each of `inputs` inputs.

    Without an activation the last is ‖f‖ and is not computed again.
    """
    if shortcut.stride() != branch.stride():
        branch = branch.contiguous()
        shortcut = shortcut.contiguous()
    x, f = _rows(shortcut, inputs), _rows(branch, inputs)
    relu = activation is torch.relu
    sums = native.step_sums(x, f, relu)
    if sums is not None and (relu or activation is None):
        state, update, change = sums.sqrt().float().unbind(1)
        return state, update, change
    dtype = _wide(torch.promote_types(x.dtype, f.dtype))
    norms = torch.empty(3, inputs, dtype=dtype, device=x.device)
    rows = inputs
    if x.device.type == "cpu":
        rows = max(1, CHUNK_BYTES // max(1, x.shape[1] * x.element_size()))
    for start in range(0, inputs, rows):
        part = slice(start, start + rows)
        _norm_into(norms[0, part], x[part], dtype)
        _norm_into(norms[1, part], f[part], dtype)
        if relu:
            # relu(x + f) − x = max(f, −x): one temporary less, and no cancellation.
            _norm_into(norms[2, part], torch.maximum(f[part], x[part].neg()), dtype)
    if activation is None:
        return norms[0], norms[1], norms[1]
    if not relu:
        return norms[0], norms[1], norm(activation(shortcut + branch) - shortcut, inputs)
    return norms[0], norms[1], norms[2]


def _norm_into(out: Tensor, features: Tensor, dtype: torch.dtype) -> None:
    torch.linalg.vector_norm(features, dim=1, dtype=dtype, out=out)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _rows(features: Tensor, inputs: int) -> Tensor:
    """(inputs, everything else) without a copy wherever memory is dense, channels last included.

    The order of the elements is that of memory, the same for two tensors of equal strides.
    """
    strides = features.stride()
    order = sorted(range(1, features.ndim), key=lambda axis: -strides[axis])
    return features.permute(0, *order).reshape(inputs, -1)
