"""Gradients of query, key and value, each element of them with one writer.

The query's pass also leaves δ = Σ_k S·∂S of each softmax, which the others need. Keys and values
gather from the queries that read them.
"""

from __future__ import annotations

import triton
import triton.language as tl

from attnlab.evolution._triton.kernels.attention import load_planes, score_of, store_planes
from attnlab.evolution._triton.kernels.geometry import place_of, read_by, reader_of


@triton.jit
def query_kernel(
    q,
    k,
    v,
    bias,
    embedding,
    grad,
    stats,
    deltas,
    q_grad,
    q_batch,
    k_batch,
    v_batch,
    grad_batch,
    q_grad_batch,
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
    """∂q = scale · Σ_k S·(∂S - δ)·(key + embedding), as a difference of two sums: one pass."""
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
    grad += batch * grad_batch + head * value_depth * pixels
    stats += both * 2 * pixels
    bias += head * taps
    embedding += head * taps * depth
    live = p < pixels
    t, h, w = place_of(p, out_height, out_width)
    query = load_planes(q, pixels, p, live, depth, COMPUTE, BLOCK_C) * SCALE
    incoming = load_planes(grad, pixels, p, live, value_depth, COMPUTE, BLOCK_V)
    most = tl.load(stats + p, mask=live, other=0.0)
    inverse = tl.load(stats + pixels + p, mask=live, other=0.0)
    delta = tl.zeros((BLOCK_P,), COMPUTE)
    changed = tl.zeros((BLOCK_C, BLOCK_P), COMPUTE)
    mean = tl.zeros((BLOCK_C, BLOCK_P), COMPUTE)
    for kt in range(WINDOW[0]):
        for kh in range(WINDOW[1]):
            for kw in range(WINDOW[2]):
                tap = (kt * WINDOW[1] + kh) * WINDOW[2] + kw
                at, inside = read_by(t, h, w, kt, kh, kw, frames, height, width, WINDOW)
                inside &= live
                counts = inside if MASK else live
                key = load_planes(k, size, at, inside, depth, COMPUTE, BLOCK_C)
                score, key = score_of(
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
                weight = tl.where(counts, tl.exp(score - most) * inverse, 0.0)
                value = load_planes(v, size, at, inside, value_depth, COMPUTE, BLOCK_V)
                change = weight * tl.sum(incoming * value, 0)
                delta += change
                changed += change[None, :] * key
                mean += weight[None, :] * key
    tl.store(deltas + both * pixels + p, delta, mask=live)
    q_grad += batch * q_grad_batch + head * depth * pixels
    total = (changed - delta[None, :] * mean) * SCALE
    store_planes(q_grad, pixels, p, live, depth, total, BLOCK_C)


@triton.jit
def key_kernel(
    q,
    k,
    v,
    bias,
    embedding,
    grad,
    stats,
    deltas,
    k_grad,
    v_grad,
    q_batch,
    k_batch,
    v_batch,
    grad_batch,
    k_grad_batch,
    v_grad_batch,
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
    HAS_BIAS: tl.constexpr,
    HAS_RELATIVE: tl.constexpr,
    COMPUTE: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_V: tl.constexpr,
    BLOCK_P: tl.constexpr,
):
    """∂key = Σ S·(∂S - δ)·q·scale and ∂value = Σ S·grad over the queries that read this pixel."""
    pixels, size = out_frames * out_height * out_width, frames * height * width
    taps: tl.constexpr = WINDOW[0] * WINDOW[1] * WINDOW[2]
    pixel_blocks = tl.cdiv(size, BLOCK_P)
    program = tl.program_id(0)
    p = program % pixel_blocks * BLOCK_P + tl.arange(0, BLOCK_P)
    both = (program // pixel_blocks).to(tl.int64)
    batch, head = both // heads, both % heads
    q += batch * q_batch + head * depth * pixels
    k += batch * k_batch + head * depth * size
    v += batch * v_batch + head * value_depth * size
    grad += batch * grad_batch + head * value_depth * pixels
    stats += both * 2 * pixels
    deltas += both * pixels
    bias += head * taps
    embedding += head * taps * depth
    live = p < size
    t, h, w = place_of(p, height, width)
    key = load_planes(k, size, p, live, depth, COMPUTE, BLOCK_C)
    value = load_planes(v, size, p, live, value_depth, COMPUTE, BLOCK_V)
    to_key = tl.zeros((BLOCK_C, BLOCK_P), COMPUTE)
    to_value = tl.zeros((BLOCK_V, BLOCK_P), COMPUTE)
    for kt in range(WINDOW[0]):
        for kh in range(WINDOW[1]):
            for kw in range(WINDOW[2]):
                tap = (kt * WINDOW[1] + kh) * WINDOW[2] + kw
                at, inside = reader_of(
                    t, h, w, kt, kh, kw, out_frames, out_height, out_width, WINDOW
                )
                inside &= live
                query = load_planes(q, pixels, at, inside, depth, COMPUTE, BLOCK_C) * SCALE
                score, _ = score_of(
                    query,
                    key,
                    bias,
                    embedding,
                    tap,
                    depth,
                    inside,
                    COMPUTE,
                    HAS_BIAS,
                    HAS_RELATIVE,
                    BLOCK_C,
                )
                most = tl.load(stats + at, mask=inside, other=0.0)
                inverse = tl.load(stats + pixels + at, mask=inside, other=0.0)
                delta = tl.load(deltas + at, mask=inside, other=0.0)
                weight = tl.where(inside, tl.exp(score - most) * inverse, 0.0)
                incoming = load_planes(grad, pixels, at, inside, value_depth, COMPUTE, BLOCK_V)
                change = weight * (tl.sum(incoming * value, 0) - delta)
                to_key += change[None, :] * query
                to_value += weight[None, :] * incoming
    k_grad += batch * k_grad_batch + head * depth * size
    v_grad += batch * v_grad_batch + head * value_depth * size
    store_planes(k_grad, size, p, live, depth, to_key, BLOCK_C)
    store_planes(v_grad, size, p, live, value_depth, to_value, BLOCK_V)
