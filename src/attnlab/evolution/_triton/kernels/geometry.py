"""Where the taps of a window are, for kernels: every problem has the three axes of a video.

`WINDOW` is the tuple of twelve integers of `Window.flat()` for three axes: sizes, strides,
dilations, paddings. Sizes of tensors are (frames, rows, columns).
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def place_of(pixel, height, width):
    """Frame, row and column of a flat index."""
    row = pixel // width
    return row // height, row % height, pixel % width


@triton.jit
def read_by(t, h, w, kt, kh, kw, frames, height, width, WINDOW: tl.constexpr):
    """The input pixel that tap (kt, kh, kw) of output (t, h, w) reads, and whether it is inside."""
    it = t * WINDOW[3] + kt * WINDOW[6] - WINDOW[9]
    ih = h * WINDOW[4] + kh * WINDOW[7] - WINDOW[10]
    iw = w * WINDOW[5] + kw * WINDOW[8] - WINDOW[11]
    inside = (it >= 0) & (it < frames) & (ih >= 0) & (ih < height) & (iw >= 0) & (iw < width)
    return (it * height + ih) * width + iw, inside


@triton.jit
def reader_of(t, h, w, kt, kh, kw, frames, height, width, WINDOW: tl.constexpr):
    """The output pixel that reads input (t, h, w) with tap (kt, kh, kw), and whether there is one.

    The sizes are the output's. How negative numbers divide does not matter: they are not inside.
    """
    nt = t + WINDOW[9] - kt * WINDOW[6]
    nh = h + WINDOW[10] - kh * WINDOW[7]
    nw = w + WINDOW[11] - kw * WINDOW[8]
    ot, oh, ow = nt // WINDOW[3], nh // WINDOW[4], nw // WINDOW[5]
    inside = (nt >= 0) & (nh >= 0) & (nw >= 0) & (ot < frames) & (oh < height) & (ow < width)
    whole = (ot * WINDOW[3] == nt) & (oh * WINDOW[4] == nh) & (ow * WINDOW[5] == nw)
    return (ot * height + oh) * width + ow, inside & whole
