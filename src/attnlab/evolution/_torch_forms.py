"""The three primitives in torch, in two forms: shifts for eager torch, views for compilers.

Shifts are one multiply-accumulate per tap. Memory is O(input): the K² shifted copies of `unfold`
never exist. On a CPU each sample is finished before the next begins, so that the K² passes over it
stay in cache (about twice as fast as passes over the whole batch).

Views are one multiply and one sum. Eager torch would materialise the K² copies; a compiler fuses
views, product and sum into one gather loop without atomics. Unrolled shifts compile to the same
speed forward but take minutes. The views are made of `unfold` and `diagonal`, never of
`as_strided`: a compiler may lay a tensor out differently from the strides it was traced with
(channels last after a convolution), and then `as_strided` reads the wrong numbers without a word.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import EllipsisType

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.evolution.window import Sizes, Window


def blocks(batch: int, device: torch.device) -> Iterator[slice]:
    """Parts of the batch to work on together; an empty batch is one empty part."""
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
    inside: tuple[EllipsisType | slice, ...] = (
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


def _padded(x: Tensor, around: Iterable[tuple[int, int]]) -> Tensor:
    """Zeros before and after, one pair for each of the last axes; a negative number cuts off.

    Compilers compute `F.pad` again in every tap, with its tests; what is joined they write down.
    """
    pairs = list(around)
    for axis, (before, after) in enumerate(pairs, start=x.dim() - len(pairs)):
        first, last = max(0, -before), x.shape[axis] - max(0, -after)
        x = x.narrow(axis, first, last - first)
        parts = [
            x.new_zeros(*x.shape[:axis], max(0, count), *x.shape[axis + 1 :])
            for count in (before, after)
        ]
        x = torch.cat((parts[0], x, parts[1]), axis)
    return x


def _around(window: Window) -> Iterator[tuple[int, int]]:
    return zip(window.padding, window.padding, strict=True)


def _windows(x: Tensor, window: Window) -> Tensor:
    """(B, C, *size) as (B, C, *out, *kernel); x is padded already."""
    for axis, (kernel, stride, dilation) in enumerate(zip(*window[:3], strict=True), start=2):
        x = x.unfold(axis, dilation * (kernel - 1) + 1, stride)[..., ::dilation]
    return x


def _taps_last(t: Tensor, axis: int, window: Window) -> Tensor:
    """Taps in one axis at `axis`, as one axis per axis of the window, at the end."""
    kernel_axes = list(range(axis, axis + window.axes))
    split = t.unflatten(axis, window.kernel_size)
    return split.movedim(kernel_axes, list(range(-window.axes, 0)))


def av_view(maps: Tensor, x: Tensor, window: Window) -> Tensor:
    """Compute `av` without autograd."""
    taken = _windows(_padded(x, _around(window)), window).unflatten(1, (maps.shape[1], -1))
    weight = _taps_last(maps, 2, window).unsqueeze(2)
    return (weight * taken).sum(list(range(-window.axes, 0))).flatten(1, 2)


def qk_view(q: Tensor, x: Tensor, groups: int, window: Window) -> Tensor:
    """Compute `qk` without autograd."""
    taken = _windows(_padded(x, _around(window)), window).flatten(-window.axes)
    products = q.unsqueeze(-1) * taken
    return products.unflatten(1, (groups, -1)).sum(2).movedim(-1, 2)


def _spread(t: Tensor, stride: Sizes) -> Tensor:
    """Put stride - 1 zeros after each pixel, along the last axes."""
    for axis, step in zip(range(-len(stride), 0), stride, strict=True):
        if step > 1:
            apart = F.pad(t.movedim(axis, -1).unsqueeze(-1), (0, step - 1))
            t = apart.flatten(-2).movedim(-1, axis)
    return t


def sc_view(maps: Tensor, y: Tensor, size: Sizes, window: Window) -> Tensor:
    """`sc` without autograd, in gather form.

    Input pixel j gets tap k from output pixel j + p - d·k. With the taps in reverse order,
    k' = K - 1 - k, that is (j + d·k') - (d·(K - 1) - p): of the padded maps of every tap, unfolded
    into windows, the diagonal on which tap and place in the window are the same.
    """
    groups, axes = maps.shape[1], window.axes
    maps, y = _spread(maps, window.stride), _spread(y, window.stride)
    around = [
        (dilation * (kernel - 1) - padding, n + padding - have)
        for n, have, kernel, dilation, padding in zip(
            size, y.shape[2:], window.kernel_size, window.dilation, window.padding, strict=True
        )
    ]
    steps = Window(window.kernel_size, (1,) * axes, window.dilation, (0,) * axes)
    values = _windows(_padded(y, around), steps).unflatten(1, (groups, -1))
    weight = _padded(maps, around).unflatten(2, window.kernel_size).flip(list(range(2, 2 + axes)))
    for dilation, kernel in zip(window.dilation, window.kernel_size, strict=True):
        # `diagonal` takes the first axis of taps away, so the next axis of space moves to 2 + axes.
        apart = weight.unfold(2 + axes, dilation * (kernel - 1) + 1, 1)[..., ::dilation]
        weight = apart.diagonal(0, 2, -1)
    return (weight.unsqueeze(2) * values).sum(list(range(-axes, 0))).flatten(1, 2)
