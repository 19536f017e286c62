"""Local attention: softmax over the window of each query, times the values of that window.

    S[p, k, i] = softmax_k( scale · q_p[i] · k_p[i + k] + position[p, k, i] )
    out[p, i] = Σ_k S[p, k, i] · v_p[i + k]

Position terms, all optional: a learned bias per head and tap; SASA's relative encoding, in which
the first half of a head's channels meets an embedding of the row offset and the second half one of
the column offset (so K_h + K_w vectors instead of K_h·K_w).

At the border the papers leave the softmax open. `boundary="mask"` (ours) leaves out the pixels
outside the image; `boundary="zero"` keeps them as zero keys and values, as a plain unfold does.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from attnlab._errors import InputError, unknown_name
from attnlab.evolution import _attention_ops, _ops
from attnlab.evolution.primitives import av, check_groups, qk, same_dtype
from attnlab.evolution.window import Pair, Window

Boundary = Literal["mask", "zero"]


def local_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    heads: int,
    window: Window,
    *,
    scale: float | None = None,
    bias: Tensor | None = None,
    relative: tuple[Tensor, Tensor] | None = None,
    boundary: Boundary = "mask",
) -> Tensor:
    """Attend from query (B, C_k, H_out, W_out) to key (B, C_k, H, W) and value (B, C_v, H, W).

    `scale` is 1/√(C_k / heads) unless given; `bias` is (heads, K_h·K_w); `relative` is the row and
    the column embedding, (heads, C_k / heads / 2, K_h) and (heads, C_k / heads / 2, K_w).
    """
    _check(query, key, value, heads, window, bias, relative, boundary)
    if scale is None:
        scale = (query.shape[1] // heads) ** -0.5
    query, key, value = same_dtype(query, key, value)
    if _ops.runs_native(query, key, value):
        positions = (bias, *(relative or (None, None)))
        mask = boundary == "mask"
        sizes = map(list, window)
        return _attention_ops.attention(query, key, value, *positions, heads, scale, mask, *sizes)[
            0
        ]
    maps = attention_maps(
        query, key, heads, window, scale=scale, bias=bias, relative=relative, boundary=boundary
    )
    return av(maps, value, window).to(value.dtype)


def packed_local_attention(
    packed: Tensor,
    heads: int,
    window: Window,
    *,
    scale: float | None = None,
    bias: Tensor | None = None,
    relative: tuple[Tensor, Tensor] | None = None,
    boundary: Boundary = "mask",
) -> Tensor:
    """`local_attention` with query, key and value as the thirds of `packed` (B, 3C, H, W)."""
    query, key, value = _attention_ops.thirds(packed)
    (packed,) = same_dtype(packed)
    if not _ops.runs_native(packed):
        return local_attention(
            query,
            key,
            value,
            heads,
            window,
            scale=scale,
            bias=bias,
            relative=relative,
            boundary=boundary,
        )
    _check(query, key, value, heads, window, bias, relative, boundary)
    if scale is None:
        scale = (query.shape[1] // heads) ** -0.5
    positions = (bias, *(relative or (None, None)))
    mask = boundary == "mask"
    sizes = map(list, window)
    return _attention_ops.attention_packed(packed, *positions, heads, scale, mask, *sizes)[0]


def attention_maps(
    query: Tensor,
    key: Tensor,
    heads: int,
    window: Window,
    *,
    scale: float,
    bias: Tensor | None = None,
    relative: tuple[Tensor, Tensor] | None = None,
    boundary: Boundary = "mask",
) -> Tensor:
    """The attention S as maps (B, heads, K_h·K_w, H_out, W_out); at least float32."""
    compute = torch.promote_types(query.dtype, torch.float32)
    query, key = query.to(compute), key.to(compute)
    scores = qk(query * scale, key, heads, window)
    if bias is not None:
        scores = scores + bias[None, :, :, None, None]
    if relative is not None:
        scores = scores + relative_scores(query * scale, *relative)
    if boundary == "mask":
        inside = taps_inside((key.shape[2], key.shape[3]), window, key.device)
        scores = scores.masked_fill(~inside, float("-inf"))
    return scores.softmax(2)


def relative_scores(query: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """q · r for every tap: (B, heads, K_h·K_w, H_out, W_out)."""
    per_head = query.unflatten(1, (row.shape[0], -1))
    upper, lower = per_head.chunk(2, dim=2)
    by_row = torch.einsum("bpdij,pdu->bpuij", upper, row.to(query.dtype))
    by_column = torch.einsum("bpdij,pdv->bpvij", lower, column.to(query.dtype))
    return (by_row.unsqueeze(3) + by_column.unsqueeze(2)).flatten(2, 3)


def taps_inside(size: Pair, window: Window, device: torch.device | None = None) -> Tensor:
    """Whether each tap of each output pixel lies in the image: (K_h·K_w, H_out, W_out)."""
    inside = [
        (at >= 0) & (at < length)
        for length, out, kernel, stride, dilation, padding in zip(
            size, window.output_size(*size), *window, strict=True
        )
        for at in [
            stride * torch.arange(out, device=device)
            + dilation * torch.arange(kernel, device=device)[:, None]
            - padding
        ]
    ]
    return (inside[0][:, None, :, None] & inside[1][None, :, None, :]).flatten(0, 1)


def _check(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    heads: int,
    window: Window,
    bias: Tensor | None,
    relative: tuple[Tensor, Tensor] | None,
    boundary: str,
) -> None:
    if boundary not in get_args(Boundary):
        raise unknown_name("boundary", boundary, get_args(Boundary))
    if not window.is_centred:
        raise InputError(f"Expected a centred window of odd size but got {window}.")
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if tensor.dim() != 4:
            raise InputError(
                f"Expected {name} of shape (B, C, H, W) but got {tuple(tensor.shape)}."
            )
        check_groups(tensor.shape[1], heads)
    out_size = window.output_size(key.shape[2], key.shape[3])
    shapes = {
        "query": (query, (*key.shape[:2], *out_size)),
        "value": (value, (key.shape[0], value.shape[1], *key.shape[2:])),
    }
    if bias is not None:
        shapes["bias"] = (bias, (heads, window.taps))
    if relative is not None:
        depth = key.shape[1] // heads
        if depth % 2:
            raise InputError(
                "Expected an even number of channels per head for the relative encoding (half for "
                f"rows, half for columns) but got {depth}."
            )
        for name, tensor, size in zip(
            ("relative row", "relative column"), relative, window.kernel_size, strict=True
        ):
            shapes[name] = (tensor, (heads, depth // 2, size))
    for name, (tensor, expected) in shapes.items():
        if tuple(tensor.shape) != tuple(expected):
            raise InputError(
                f"Expected {name} of shape {tuple(expected)} but got {tuple(tensor.shape)}."
            )
