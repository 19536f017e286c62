"""The three primitives in eager torch: one shifted multiply-accumulate per tap.

Memory is O(input): the K² shifted copies of `unfold` never exist. On a CPU each sample is finished
before the next begins, so that the K² passes over it stay in cache (about twice as fast as passes
over the whole batch).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.evolution.window import Sizes, Window


def blocks(batch: int, device: torch.device) -> Iterator[slice]:
    """Parts of the batch to work on together; one that is empty of an empty batch."""
    step = 1 if device.type == "cpu" else max(batch, 1)
    for start in range(0, max(batch, 1), step):
        yield slice(start, start + step)


def av_shift(maps: Tensor, x: Tensor, window: Window) -> Tensor:
    """`av` without autograd: maps (B, G, taps, *out), x (B, C, *size)."""
    groups, out_size = maps.shape[1], maps.shape[3:]
    out = x.new_zeros(x.shape[0], groups, x.shape[1] // groups, *out_size)
    for block in blocks(x.shape[0], x.device):
        padded = F.pad(x[block], window.pad()).unflatten(1, (groups, -1))
        for tap, shift in enumerate(window.shifts(*out_size)):
            out[block].addcmul_(maps[block, :, tap].unsqueeze(2), padded[shift])
    return out.flatten(1, 2)


def qk_shift(q: Tensor, x: Tensor, groups: int, window: Window) -> Tensor:
    """`qk` without autograd: q (B, C, *out), x (B, C, *size)."""
    out_size = q.shape[2:]
    out = x.new_empty(x.shape[0], groups, window.taps, *out_size)
    for block in blocks(x.shape[0], x.device):
        padded = F.pad(x[block], window.pad()).unflatten(1, (groups, -1))
        queries = q[block].unflatten(1, (groups, -1))
        product = torch.empty_like(queries)
        for tap, shift in enumerate(window.shifts(*out_size)):
            torch.mul(queries, padded[shift], out=product)
            torch.sum(product, 2, out=out[block, :, tap])
    return out


def sc_shift(maps: Tensor, y: Tensor, size: Sizes, window: Window) -> Tensor:
    """`sc` without autograd: maps (B, G, taps, *out), y (B, C, *out)."""
    groups, out_size = maps.shape[1], maps.shape[3:]
    padded_size = [n + 2 * padding for n, padding in zip(size, window.padding, strict=True)]
    inside: tuple[Any, ...] = (
        ...,
        *(slice(p, p + n) for n, p in zip(size, window.padding, strict=True)),
    )
    out = y.new_empty(*y.shape[:2], *size)
    for block in blocks(y.shape[0], y.device):
        grouped = y[block].unflatten(1, (groups, -1))
        padded = y.new_zeros(*grouped.shape[:3], *padded_size)
        for tap, shift in enumerate(window.shifts(*out_size)):
            padded[shift].addcmul_(maps[block, :, tap].unsqueeze(2), grouped)
        out[block] = padded[inside].flatten(1, 2)
    return out
