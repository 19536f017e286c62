"""The three primitives in eager torch: one shifted multiply-accumulate per tap.

Memory is O(input): the K² shifted copies of `unfold` never exist. On a CPU each sample is finished
before the next begins, so that the K² passes over it stay in cache (about twice as fast as passes
over the whole batch).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.evolution.window import Pair, Window


def _blocks(batch: int, device: torch.device) -> Iterator[slice]:
    step = 1 if device.type == "cpu" else max(batch, 1)
    for start in range(0, batch, step):
        yield slice(start, start + step)


def av_shift(maps: Tensor, x: Tensor, window: Window) -> Tensor:
    """`av` without autograd: maps (B, G, K², H_out, W_out), x (B, C, H, W)."""
    groups, out_size = maps.shape[1], maps.shape[3:]
    out = x.new_zeros(x.shape[0], groups, x.shape[1] // groups, *out_size)
    for block in _blocks(x.shape[0], x.device):
        padded = F.pad(x[block], window.pad()).unflatten(1, (groups, -1))
        for tap, (rows, columns) in enumerate(window.shifts(*out_size)):
            out[block].addcmul_(maps[block, :, tap].unsqueeze(2), padded[..., rows, columns])
    return out.flatten(1, 2)


def qk_shift(q: Tensor, x: Tensor, groups: int, window: Window) -> Tensor:
    """`qk` without autograd: q (B, C, H_out, W_out), x (B, C, H, W)."""
    out_size = q.shape[2:]
    out = x.new_empty(x.shape[0], groups, window.taps, *out_size)
    for block in _blocks(x.shape[0], x.device):
        padded = F.pad(x[block], window.pad()).unflatten(1, (groups, -1))
        queries = q[block].unflatten(1, (groups, -1))
        product = torch.empty_like(queries)
        for tap, (rows, columns) in enumerate(window.shifts(*out_size)):
            torch.mul(queries, padded[..., rows, columns], out=product)
            torch.sum(product, 2, out=out[block, :, tap])
    return out


def sc_shift(maps: Tensor, y: Tensor, size: Pair, window: Window) -> Tensor:
    """`sc` without autograd: maps (B, G, K², H_out, W_out), y (B, C, H_out, W_out)."""
    groups, out_size = maps.shape[1], maps.shape[3:]
    top, left = window.padding
    out = y.new_empty(*y.shape[:2], *size)
    for block in _blocks(y.shape[0], y.device):
        padded = y.new_zeros(
            maps[block].shape[0],
            groups,
            y.shape[1] // groups,
            size[0] + 2 * top,
            size[1] + 2 * left,
        )
        grouped = y[block].unflatten(1, (groups, -1))
        for tap, (rows, columns) in enumerate(window.shifts(*out_size)):
            padded[..., rows, columns].addcmul_(maps[block, :, tap].unsqueeze(2), grouped)
        inside = padded[..., top : top + size[0], left : left + size[1]]
        out[block] = inside.flatten(1, 2)
    return out
