"""Gradients of bias and relative embeddings: one program per tap, head and image.

The sum over images follows in torch, so that the total is the same in every run.
"""

from __future__ import annotations

import triton
import triton.language as tl

from attnlab.evolution._triton.kernels.attention import load_planes, score_of
from attnlab.evolution._triton.kernels.geometry import place_of, read_by


@triton.jit
def position_kernel(
    q,
    k,
    v,
    bias,
    embedding,
    grad,
    stats,
    deltas,
    bias_grad,
    embedding_grad,
    q_batch,
    k_batch,
    v_batch,
    grad_batch,
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
    """One tap of one head and image: Σ S·(∂S - δ), and the same times the scaled query."""
    pixels, size = out_frames * out_height * out_width, frames * height * width
    taps: tl.constexpr = WINDOW[0] * WINDOW[1] * WINDOW[2]
    program = tl.program_id(0)
    tap, both = program % taps, (program // taps).to(tl.int64)
    kt, kh, kw = place_of(tap, WINDOW[1], WINDOW[2])
    batch, head = both // heads, both % heads
    q += batch * q_batch + head * depth * pixels
    k += batch * k_batch + head * depth * size
    v += batch * v_batch + head * value_depth * size
    grad += batch * grad_batch + head * value_depth * pixels
    stats += both * 2 * pixels
    deltas += both * pixels
    bias += head * taps
    embedding += head * taps * depth
    total = tl.zeros((BLOCK_P,), COMPUTE)
    with_query = tl.zeros((BLOCK_C, BLOCK_P), COMPUTE)
    for first in range(0, pixels, BLOCK_P):
        p = first + tl.arange(0, BLOCK_P)
        live = p < pixels
        t, h, w = place_of(p, out_height, out_width)
        at, inside = read_by(t, h, w, kt, kh, kw, frames, height, width, WINDOW)
        inside &= live
        counts = inside if MASK else live
        query = load_planes(q, pixels, p, live, depth, COMPUTE, BLOCK_C) * SCALE
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
        most = tl.load(stats + p, mask=live, other=0.0)
        inverse = tl.load(stats + pixels + p, mask=live, other=0.0)
        delta = tl.load(deltas + p, mask=live, other=0.0)
        weight = tl.where(counts, tl.exp(score - most) * inverse, 0.0)
        incoming = load_planes(grad, pixels, p, live, value_depth, COMPUTE, BLOCK_V)
        value = load_planes(v, size, at, inside, value_depth, COMPUTE, BLOCK_V)
        change = weight * (tl.sum(incoming * value, 0) - delta)
        total += change
        with_query += change[None, :] * query
    if HAS_BIAS:
        tl.store(bias_grad + both * taps + tap, tl.sum(total, 0))
    if HAS_RELATIVE:
        d = tl.arange(0, BLOCK_C)
        place = embedding_grad + (both * taps + tap) * depth + d
        tl.store(place, tl.sum(with_query, 1), mask=d < depth)
