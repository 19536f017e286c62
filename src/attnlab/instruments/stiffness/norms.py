"""The 2-norms of a step, input by input, reading each feature map as few times as possible."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from attnlab.instruments.stiffness import native

# Chunks stay in cache between the passes over them, and the one temporary is reused. Reductions
# over fewer than eight rows take a path in torch that is several times slower.
CHUNK_BYTES = 1 << 20
FEWEST_ROWS = 8

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
    if activation is None or activation is torch.relu:
        relu = activation is torch.relu
        sums = native.step_sums(x, f, relu)
        if sums is not None:
            state, update, change = sums.sqrt().float().unbind(1)
            return state, update, change
        return _eager(x, f, relu)
    state, update, _ = _eager(x, f, relu=False)
    return state, update, norm(activation(shortcut + branch) - shortcut, inputs)


def _eager(x: Tensor, f: Tensor, relu: bool) -> tuple[Tensor, Tensor, Tensor]:
    inputs, size = x.shape
    dtype = _wide(torch.promote_types(x.dtype, f.dtype))
    norms = torch.empty(3, inputs, dtype=dtype, device=x.device)
    rows = inputs
    if x.device.type == "cpu":
        rows = max(FEWEST_ROWS, CHUNK_BYTES // max(1, size * x.element_size()))
    space = torch.empty(min(rows, inputs), size, dtype=dtype, device=x.device) if relu else None
    for start in range(0, inputs, rows):
        part = slice(start, start + rows)
        _norm_into(norms[0, part], x[part], dtype)
        _norm_into(norms[1, part], f[part], dtype)
        if space is not None:
            # relu(x + f) − x = max(f, −x): one temporary less, and no cancellation.
            out = space[: len(x[part])]
            # `neg` is the quicker one, and does not widen half types.
            same = x.dtype == dtype
            change = torch.neg(x[part], out=out) if same else torch.mul(x[part], -1, out=out)
            _norm_into(norms[2, part], torch.maximum(f[part], change, out=change), dtype)
    return norms[0], norms[1], norms[2 if relu else 1]


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
