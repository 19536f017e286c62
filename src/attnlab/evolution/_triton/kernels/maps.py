"""The three primitives. Every element of an output has one writer: no atomics, no races.

A program takes one group of one image, a block of pixels, and a block of channels (`av`, `sc`) or a
row of taps (`qk`). Planes are contiguous; `*_batch` is how far apart the images of an operand are.
"""

from __future__ import annotations

import triton
import triton.language as tl

from attnlab.evolution._triton.kernels.geometry import place_of, read_by, reader_of


@triton.jit
def av_kernel(
    maps,
    x,
    out,
    maps_batch,
    x_batch,
    groups,
    channels,
    frames,
    height,
    width,
    out_frames,
    out_height,
    out_width,
    WINDOW: tl.constexpr,
    COMPUTE: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_P: tl.constexpr,
):
    """out[c, i] = Σ_k maps[g, k, i] · x[c, i + k]"""
    pixels, size = out_frames * out_height * out_width, frames * height * width
    pixel_blocks, channel_blocks = tl.cdiv(pixels, BLOCK_P), tl.cdiv(channels, BLOCK_C)
    program = tl.program_id(0)
    p = program % pixel_blocks * BLOCK_P + tl.arange(0, BLOCK_P)
    c = program // pixel_blocks % channel_blocks * BLOCK_C + tl.arange(0, BLOCK_C)
    both = (program // pixel_blocks // channel_blocks).to(tl.int64)
    batch, group = both // groups, both % groups
    maps += batch * maps_batch + group * WINDOW[0] * WINDOW[1] * WINDOW[2] * pixels
    x += batch * x_batch + group * channels * size
    out += both * channels * pixels
    t, h, w = place_of(p, out_height, out_width)
    live, used = p < pixels, (c < channels)[:, None]
    total = tl.zeros((BLOCK_C, BLOCK_P), COMPUTE)
    for kt in range(WINDOW[0]):
        for kh in range(WINDOW[1]):
            for kw in range(WINDOW[2]):
                tap = (kt * WINDOW[1] + kh) * WINDOW[2] + kw
                at, inside = read_by(t, h, w, kt, kh, kw, frames, height, width, WINDOW)
                weight = tl.load(maps + tap * pixels + p, mask=live, other=0.0).to(COMPUTE)
                mask = used & (live & inside)[None, :]
                value = tl.load(x + c[:, None] * size + at[None, :], mask=mask, other=0.0)
                total += weight[None, :] * value.to(COMPUTE)
    place = out + c[:, None] * pixels + p[None, :]
    tl.store(place, total.to(out.dtype.element_ty), mask=used & live[None, :])


@triton.jit
def sc_kernel(
    maps,
    y,
    out,
    maps_batch,
    y_batch,
    groups,
    channels,
    frames,
    height,
    width,
    out_frames,
    out_height,
    out_width,
    WINDOW: tl.constexpr,
    COMPUTE: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_P: tl.constexpr,
):
    """out[c, j] = Σ_k maps[g, k, j - k] · y[c, j - k]; `out` has the size without `out_`."""
    pixels, size = out_frames * out_height * out_width, frames * height * width
    pixel_blocks, channel_blocks = tl.cdiv(size, BLOCK_P), tl.cdiv(channels, BLOCK_C)
    program = tl.program_id(0)
    p = program % pixel_blocks * BLOCK_P + tl.arange(0, BLOCK_P)
    c = program // pixel_blocks % channel_blocks * BLOCK_C + tl.arange(0, BLOCK_C)
    both = (program // pixel_blocks // channel_blocks).to(tl.int64)
    batch, group = both // groups, both % groups
    maps += batch * maps_batch + group * WINDOW[0] * WINDOW[1] * WINDOW[2] * pixels
    y += batch * y_batch + group * channels * pixels
    out += both * channels * size
    t, h, w = place_of(p, height, width)
    live, used = p < size, (c < channels)[:, None]
    total = tl.zeros((BLOCK_C, BLOCK_P), COMPUTE)
    for kt in range(WINDOW[0]):
        for kh in range(WINDOW[1]):
            for kw in range(WINDOW[2]):
                tap = (kt * WINDOW[1] + kh) * WINDOW[2] + kw
                at, inside = reader_of(
                    t, h, w, kt, kh, kw, out_frames, out_height, out_width, WINDOW
                )
                inside &= live
                weight = tl.load(maps + tap * pixels + at, mask=inside, other=0.0).to(COMPUTE)
                mask = used & inside[None, :]
                value = tl.load(y + c[:, None] * pixels + at[None, :], mask=mask, other=0.0)
                total += weight[None, :] * value.to(COMPUTE)
    place = out + c[:, None] * size + p[None, :]
    tl.store(place, total.to(out.dtype.element_ty), mask=used & live[None, :])


@triton.jit
def qk_kernel(
    q,
    x,
    out,
    q_batch,
    x_batch,
    groups,
    channels,
    frames,
    height,
    width,
    out_frames,
    out_height,
    out_width,
    WINDOW: tl.constexpr,
    COMPUTE: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_P: tl.constexpr,
):
    """out[g, k, i] = Σ_{c in g} q[c, i] · x[c, i + k]"""
    pixels, size = out_frames * out_height * out_width, frames * height * width
    pixel_blocks = tl.cdiv(pixels, BLOCK_P)
    program = tl.program_id(0)
    p = program % pixel_blocks * BLOCK_P + tl.arange(0, BLOCK_P)
    row = program // pixel_blocks % (WINDOW[0] * WINDOW[1])
    both = (program // pixel_blocks // (WINDOW[0] * WINDOW[1])).to(tl.int64)
    batch, group = both // groups, both % groups
    q += batch * q_batch + group * channels * pixels
    x += batch * x_batch + group * channels * size
    out += both * WINDOW[0] * WINDOW[1] * WINDOW[2] * pixels
    t, h, w = place_of(p, out_height, out_width)
    live = p < pixels
    kt, kh = row // WINDOW[1], row % WINDOW[1]
    for kw in range(WINDOW[2]):
        at, inside = read_by(t, h, w, kt, kh, kw, frames, height, width, WINDOW)
        inside &= live
        total = tl.zeros((BLOCK_P,), COMPUTE)
        for first in range(0, channels, BLOCK_C):
            c = first + tl.arange(0, BLOCK_C)[:, None]
            mask = (c < channels) & inside[None, :]
            query = tl.load(q + c * pixels + p[None, :], mask=mask, other=0.0).to(COMPUTE)
            value = tl.load(x + c * size + at[None, :], mask=mask, other=0.0).to(COMPUTE)
            total += tl.sum(query * value, 0)
        place = out + (row * WINDOW[2] + kw) * pixels + p
        tl.store(place, total.to(out.dtype.element_ty), mask=live)
