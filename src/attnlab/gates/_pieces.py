"""Temporaries that stay in the cache."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

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
