"""Which axis of a feature map is the channel axis.

Convolutions and batch-like norms put the channels on axis 1, linear layers and layer norms on the
last; layout operations carry the axis along; an addition keeps its shortcut's. So a mixer's token
MLP, whose linear layer scales tokens, is still gated per feature.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnlab.residuals.graph import Graph, Node

_LAST_AXIS_NORMS = frozenset(("layer_norm", "rms_norm", "fast_layer_norm", "fast_rms_norm"))


def channel_axis(graph: Graph, node: Node) -> int | None:
    """The channel axis of `node`, from those of its inputs; None where it cannot be told."""
    rank = len(node.shape)
    if rank < 2:
        return None
    if node.operation == "input":
        return 1 if rank == 4 else None
    if node.kind == "convolution":
        digits = [int(c) for c in node.operation if c.isdigit()]
        return rank - 1 - digits[0] if digits else 1
    if node.kind == "linear" or node.operation in _LAST_AXIS_NORMS:
        return rank - 1
    if node.operation == "multi_head_attention_forward":
        return rank - 1
    known = [
        source
        for source in (graph.nodes[i] for i in node.data_inputs)
        if source.channel_axis is not None
    ]
    if not known:
        return 1 if node.kind == "norm" else None
    source = known[0]
    if node.kind == "norm":
        return source.channel_axis if source.shape == node.shape else 1
    if node.operation in ("permute", "transpose", "movedim", "moveaxis", "t", "T", "mT"):
        return _moved(node, source)
    if node.kind in ("matmul",) or node.operation == "scaled_dot_product_attention":
        return None
    same_shape = [s for s in known if s.shape == node.shape]
    if same_shape:
        return same_shape[0].channel_axis
    return _carried(source.shape, source.channel_axis, node.shape)


def _moved(node: Node, source: Node) -> int | None:
    axis, rank = source.channel_axis, len(source.shape)
    assert axis is not None
    order = _axis_order(node.operation, node.arguments[1:], node.keywords, rank)
    return order.index(axis) if order is not None and axis in order else None


def _axis_order(
    operation: str, arguments: tuple[Any, ...], keywords: dict[str, Any], rank: int
) -> list[int] | None:
    """The source axis of each result axis."""
    order = list(range(rank))
    if operation in ("t", "T"):
        return order[::-1]
    if operation == "mT":
        return [*order[:-2], order[-1], order[-2]]
    values = [*arguments, *keywords.values()]
    if operation == "permute":
        dims = values[0] if len(values) == 1 else values
        return [d % rank for d in dims]
    if operation == "transpose":
        a, b = (d % rank for d in values[:2])
        order[a], order[b] = order[b], order[a]
        return order
    sources, targets = ([d % rank for d in ((v,) if isinstance(v, int) else v)] for v in values[:2])
    rest = iter([d for d in order if d not in sources])
    moved = dict(zip(targets, sources, strict=True))
    return [moved[d] if d in moved else next(rest) for d in order]


def _carried(before: tuple[int, ...], axis: int | None, after: tuple[int, ...]) -> int | None:
    """The axis of the same size that has the same sizes behind it, or in front of it, after a
    reshape, slice, pool or concatenation."""
    assert axis is not None
    size = before[axis]
    behind = [a for a, n in enumerate(after) if n == size and after[a + 1 :] == before[axis + 1 :]]
    if behind:
        return behind[-1]
    volume = prod(before[axis + 1 :])
    equal = [a for a, n in enumerate(after) if n == size and prod(after[a + 1 :]) == volume]
    if equal:
        return equal[-1]
    front = [a for a, n in enumerate(after) if n == size and after[:a] == before[:axis]]
    if front:
        return front[0]
    if len(before) == len(after) and before[:axis] == after[:axis] and axis > 0:
        return axis  # the number of channels changed in place: concatenation, split, padding
    if len(before) == len(after) and before[axis + 1 :] == after[axis + 1 :]:
        return axis
    return None
