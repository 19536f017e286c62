"""The three primitives as one multiply and one sum over a strided view: the form for compilers.

Eager torch would materialise the K² copies; a compiler fuses view, product and sum into one gather
loop without atomics. Unrolled shifts compile to the same speed forward but take minutes.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from attnlab.evolution.window import Pair, Window


def _windows(x: Tensor, groups: int, out_size: Pair, window: Window) -> Tensor:
    """A view (B, G, C/G, K_h, K_w, H_out, W_out) of the padded x."""
    padded = F.pad(x, window.pad()).contiguous().unflatten(1, (groups, -1))
    *outer, row, column = padded.stride()
    size = (*padded.shape[:3], *window.kernel_size, *out_size)
    (dilation_h, dilation_w), (stride_h, stride_w) = window.dilation, window.stride
    steps = (dilation_h * row, dilation_w * column, stride_h * row, stride_w * column)
    return padded.as_strided(size, (*outer, *steps))


def av_view(maps: Tensor, x: Tensor, window: Window) -> Tensor:
    """`av` without autograd."""
    groups, out_size = maps.shape[1], (maps.shape[3], maps.shape[4])
    weight = maps.unflatten(2, window.kernel_size).unsqueeze(2)
    return (weight * _windows(x, groups, out_size, window)).sum((3, 4)).flatten(1, 2)


def qk_view(q: Tensor, x: Tensor, groups: int, window: Window) -> Tensor:
    """`qk` without autograd."""
    queries = q.unflatten(1, (groups, -1))[:, :, :, None, None]
    windows = _windows(x, groups, (q.shape[2], q.shape[3]), window)
    return (queries * windows).sum(2).flatten(2, 3)


def _spread(t: Tensor, stride: Pair) -> Tensor:
    """Put stride - 1 zeros between neighbouring pixels of the last two axes."""
    if stride == (1, 1):
        return t
    height, width = (t.shape[-2] - 1) * stride[0] + 1, (t.shape[-1] - 1) * stride[1] + 1
    out = t.new_zeros(*t.shape[:-2], height, width)
    out[..., :: stride[0], :: stride[1]] = t
    return out


def sc_view(maps: Tensor, y: Tensor, size: Pair, window: Window) -> Tensor:
    """`sc` without autograd, in gather form.

    Input pixel j gets tap k from output pixel j + p - d·k. With the taps in reverse order,
    k' = K - 1 - k, that is (j + d·k') - (d·(K - 1) - p): a view of padded maps whose step from tap
    to tap also moves by d pixels.
    """
    groups = maps.shape[1]
    maps, y = _spread(maps, window.stride), _spread(y, window.stride)
    span = [d * (k - 1) for d, k in zip(window.dilation, window.kernel_size, strict=True)]
    before = [s - p for s, p in zip(span, window.padding, strict=True)]
    after = [
        full + s - b - have
        for full, s, b, have in zip(size, span, before, y.shape[2:], strict=True)
    ]
    pad = (before[1], after[1], before[0], after[0])
    weight = F.pad(maps, pad).unflatten(2, window.kernel_size).flip(2, 3).contiguous()
    values = F.pad(y, pad).contiguous().unflatten(1, (groups, -1))
    dilation_h, dilation_w = window.dilation
    batch, group, tap_h, tap_w, row, column = weight.stride()
    weight = weight.as_strided(
        (*weight.shape[:4], *size),
        (batch, group, tap_h + dilation_h * row, tap_w + dilation_w * column, row, column),
    )
    *outer, row, column = values.stride()
    values = values.as_strided(
        (*values.shape[:3], *window.kernel_size, *size),
        (*outer, dilation_h * row, dilation_w * column, row, column),
    )
    return (weight.unsqueeze(2) * values).sum((3, 4)).flatten(1, 2)
