"""Local attention without maps in memory: one pass over the window with a running softmax.

A program takes one head of one image and a block of queries. Position terms come per tap: `bias`
(heads, taps), and `embedding` (heads, taps, depth), which is added to the keys; a pixel outside the
image has a key of zero, so it meets the embedding alone (and with `MASK` is left out).
"""

from __future__ import annotations

import triton
import triton.language as tl

from attnlab.evolution._triton.kernels.geometry import place_of, read_by

# Far below any score, and finite: the difference of two of these is a number.
OUTSIDE = tl.constexpr(-1e30)


@triton.jit
def load_planes(start, plane, at, mask, count, COMPUTE: tl.constexpr, BLOCK: tl.constexpr):
    """(BLOCK, pixels): `count` planes, each `plane` long, at the pixels `at`; zero elsewhere."""
    c = tl.arange(0, BLOCK)[:, None]
    found = tl.load(start + c * plane + at[None, :], mask=(c < count) & mask[None, :], other=0.0)
    return found.to(COMPUTE)


@triton.jit
def store_planes(start, plane, at, mask, count, value, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)[:, None]
    place = start + c * plane + at[None, :]
    tl.store(place, value.to(start.dtype.element_ty), mask=(c < count) & mask[None, :])


@triton.jit
def score_of(
    query,
    key,
    bias,
    embedding,
    tap,
    depth,
    counts,
    COMPUTE: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_RELATIVE: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """The score of one tap for a block of queries (scaled), and the key with its embedding."""
    if HAS_RELATIVE:
        d = tl.arange(0, BLOCK_C)
        offset = tl.load(embedding + tap * depth + d, mask=d < depth, other=0.0)
        key += offset.to(COMPUTE)[:, None]
    score = tl.sum(query * key, 0)
    if HAS_BIAS:
        score += tl.load(bias + tap).to(COMPUTE)
    return tl.where(counts, score, OUTSIDE), key


@triton.jit
def attention_kernel(
    q,
    k,
    v,
    bias,
    embedding,
    out,
    stats,
    q_batch,
    k_batch,
    v_batch,
    heads,
    depth,
    value_depth,
    frames,
    height,
    width,
    out_frames,
    out_height,
    out_width,
    WINDOW: tl.constexpr,
    SCALE: tl.constexpr,
    MASK: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_RELATIVE: tl.constexpr,
    COMPUTE: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_V: tl.constexpr,
    BLOCK_P: tl.constexpr,
):
    """`stats` gets the maximum of each softmax and one over its sum."""
    pixels, size = out_frames * out_height * out_width, frames * height * width
    taps: tl.constexpr = WINDOW[0] * WINDOW[1] * WINDOW[2]
    pixel_blocks = tl.cdiv(pixels, BLOCK_P)
    program = tl.program_id(0)
    p = program % pixel_blocks * BLOCK_P + tl.arange(0, BLOCK_P)
    both = (program // pixel_blocks).to(tl.int64)
    batch, head = both // heads, both % heads
    q += batch * q_batch + head * depth * pixels
    k += batch * k_batch + head * depth * size
    v += batch * v_batch + head * value_depth * size
    bias += head * taps
    embedding += head * taps * depth
    live = p < pixels
    t, h, w = place_of(p, out_height, out_width)
    query = load_planes(q, pixels, p, live, depth, COMPUTE, BLOCK_C) * SCALE
    most = tl.full((BLOCK_P,), OUTSIDE, COMPUTE)
    total = tl.zeros((BLOCK_P,), COMPUTE)
    mean = tl.zeros((BLOCK_V, BLOCK_P), COMPUTE)
    for kt in range(WINDOW[0]):
        for kh in range(WINDOW[1]):
            for kw in range(WINDOW[2]):
                tap = (kt * WINDOW[1] + kh) * WINDOW[2] + kw
                at, inside = read_by(t, h, w, kt, kh, kw, frames, height, width, WINDOW)
                inside &= live
                counts = inside if MASK else live
                key = load_planes(k, size, at, inside, depth, COMPUTE, BLOCK_C)
                score, _ = score_of(
                    query,
                    key,
                    bias,
                    embedding,
                    tap,
                    depth,
                    counts,
                    COMPUTE,
                    HAS_BIAS,
                    HAS_RELATIVE,
                    BLOCK_C,
                )
                larger = tl.maximum(most, score)
                before = tl.exp(most - larger)
                weight = tl.where(counts, tl.exp(score - larger), 0.0)
                value = load_planes(v, size, at, inside, value_depth, COMPUTE, BLOCK_V)
                mean = mean * before[None, :] + weight[None, :] * value
                total = total * before + weight
                most = larger
    inverse = 1.0 / tl.where(live, total, 1.0)
    out += both * value_depth * pixels
    store_planes(out, pixels, p, live, value_depth, mean * inverse[None, :], BLOCK_V)
    stats += both * 2 * pixels
    tl.store(stats + p, most, mask=live)
    tl.store(stats + pixels + p, inverse, mask=live)
