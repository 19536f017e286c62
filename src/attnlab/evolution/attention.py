"""Local attention: softmax over the window of each query, times the values of that window.

    S[p, k, i] = softmax_k( scale · q_p[i] · k_p[i + k] + position[p, k, i] )
    out[p, i] = Σ_k S[p, k, i] · v_p[i + k]

`_plain` says what the position terms are. At the border the papers leave the softmax open.
`boundary="mask"` (ours) leaves out the pixels outside the image; `boundary="zero"` keeps them as
zero keys and values, as a plain unfold does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from torch import Tensor

from attnlab._errors import InputError, unknown_name
from attnlab.evolution import _attention_ops
from attnlab.evolution._implementation import AttentionCall
from attnlab.evolution.primitives import check_groups, check_operands, operands
from attnlab.evolution.window import Window

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
    relative: Sequence[Tensor] | None = None,
    boundary: Boundary = "mask",
) -> Tensor:
    """Attend from query (B, C_k, H_out, W_out) to key (B, C_k, H, W) and value (B, C_v, H, W).

    `scale` is 1/√(C_k / heads) unless given; `bias` is (heads, K_h·K_w); `relative` is the row and
    the column embedding, (heads, C_k / heads / 2, K_h) and (heads, C_k / heads / 2, K_w).
    """
    _check(query, key, value, heads, window, bias, relative, boundary)
    parts = operands(query, key, value)
    return _attend(parts, query.shape[1], heads, window, scale, bias, relative, boundary)


def packed_local_attention(
    packed: Tensor,
    heads: int,
    window: Window,
    *,
    scale: float | None = None,
    bias: Tensor | None = None,
    relative: Sequence[Tensor] | None = None,
    boundary: Boundary = "mask",
) -> Tensor:
    """`local_attention` with query, key and value as the thirds of `packed` (B, 3C, H, W)."""
    query, key, value = packed.chunk(3, dim=1)
    _check(query, key, value, heads, window, bias, relative, boundary)
    parts = operands(packed)
    return _attend(parts, query.shape[1], heads, window, scale, bias, relative, boundary)


def _attend(
    parts: tuple[Tensor, ...],
    width: int,
    heads: int,
    window: Window,
    scale: float | None,
    bias: Tensor | None,
    relative: Sequence[Tensor] | None,
    boundary: Boundary,
) -> Tensor:
    embeddings = list(relative or ())
    check_operands(parts[0], *([] if bias is None else [bias]), *embeddings)
    scale = (width // heads) ** -0.5 if scale is None else scale
    mask = boundary == "mask"
    return _attention_ops.attention_operator(
        list(parts), bias, embeddings, heads, scale, mask, window.flat()
    )[0]


def local_attention_maps(
    query: Tensor,
    key: Tensor,
    heads: int,
    window: Window,
    *,
    scale: float,
    bias: Tensor | None = None,
    relative: Sequence[Tensor] | None = None,
    boundary: Boundary = "mask",
) -> Tensor:
    """The attention S as maps (B, heads, K_h·K_w, H_out, W_out); at least float32."""
    query, key = operands(query, key)
    mask = boundary == "mask"
    embeddings = list(relative or ())
    call = AttentionCall([query, key], bias, embeddings, heads, scale, mask, window.flat())
    return _attention_ops.differentiable_maps(call)


def _check(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    heads: int,
    window: Window,
    bias: Tensor | None,
    relative: Sequence[Tensor] | None,
    boundary: str,
) -> None:
    if boundary not in get_args(Boundary):
        raise unknown_name("boundary", boundary, get_args(Boundary))
    if not window.is_centred:
        raise InputError(f"Expected a centred window of odd size but got {window}.")
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if tensor.dim() != 2 + window.axes:
            shape = ("(B, C, L)", "(B, C, H, W)", "(B, C, T, H, W)")[window.axes - 1]
            raise InputError(f"Expected {name} of shape {shape} but got {tuple(tensor.shape)}.")
        check_groups(tensor.shape[1], heads)
    out_size = window.output_size(*key.shape[2:])
    shapes = {
        "query": (query, (*key.shape[:2], *out_size)),
        "value": (value, (key.shape[0], value.shape[1], *key.shape[2:])),
    }
    if bias is not None:
        shapes["bias"] = (bias, (heads, window.taps))
    if relative is not None:
        shapes |= _relative_shapes(key.shape[1] // heads, heads, window, relative)
    for name, (tensor, expected) in shapes.items():
        if tuple(tensor.shape) != tuple(expected):
            raise InputError(
                f"Expected {name} of shape {tuple(expected)} but got {tuple(tensor.shape)}."
            )


def _relative_shapes(
    depth: int, heads: int, window: Window, relative: Sequence[Tensor]
) -> dict[str, tuple[Tensor, tuple[int, ...]]]:
    """Each embedding by its name, and the shape it must have."""
    names = RELATIVE[window.axes]
    if len(relative) != window.axes:
        raise InputError(
            f"Expected one relative embedding per axis ({', '.join(names)}) but got "
            f"{len(relative)}."
        )
    if depth % window.axes:
        raise InputError(uneven_depth(window.axes, depth))
    return {
        f"relative {name}": (embedding, (heads, depth // window.axes, size))
        for name, embedding, size in zip(names, relative, window.kernel_size, strict=True)
    }


RELATIVE = {1: ("column",), 2: ("row", "column"), 3: ("frame", "row", "column")}
"""What the embeddings of the offset along each axis are called."""


def uneven_depth(axes: int, depth: int) -> str:
    """Return what to say of a number of channels per head that cannot be split among the axes."""
    if axes == 2:
        return (
            "Expected an even number of channels per head for the relative encoding (half for "
            f"rows, half for columns) but got {depth}."
        )
    return (
        f"Expected a multiple of {axes} channels per head for the relative encoding (a third each "
        f"for frames, rows and columns) but got {depth}."
    )
