"""How layers take a gate: into their weights, or through.

Rows of a convolution or linear layer, the affine parameters of a norm, the output projection of
attention.
"""

from __future__ import annotations

from contextlib import suppress

from torch import Tensor

from attnlab.residuals.graph import Node, Ref
from attnlab.surgery.folding._flow import Flow, arguments, references, spatial_axes
from attnlab.surgery.folding._ids import NOT_READ, Refusal, along, broadcast_from, channel_vector
from attnlab.surgery.folding._way import Asked, Rule, Way


def _affine(node: Node, vector: Tensor, weight: Tensor) -> Way:
    """Weight and bias of a layer, given the ids of both."""
    given = arguments(node)
    asked = {given["weight"].index: weight}
    if isinstance(given.get("bias"), Ref):
        asked[given["bias"].index] = vector
    return Way(asked)


def _norm(flow: Flow, node: Node, asked: Asked) -> list[Way]:
    reference = arguments(node).get("weight")
    if not isinstance(reference, Ref):
        if not node.data:
            raise Refusal("standardises a weight, which undoes any scaling of it")
        raise Refusal("has no affine parameters to take the gate", norm=node.owner)
    shape = flow.nodes[reference.index].shape
    if node.operation in ("batch_norm", "group_norm", "instance_norm"):
        vector = channel_vector(asked[0], 1)
    else:
        vector = broadcast_from(asked[0], shape)
    return [_affine(node, vector, vector)]


def _convolution(flow: Flow, node: Node, asked: Asked) -> list[Way]:
    weight = flow.operand(node, "weight")
    axis = len(node.shape) - 1 - spatial_axes(node)
    vector = channel_vector(asked[0], axis)
    found = [_affine(node, vector, along(vector, 0, weight.shape))]
    source = flow.operand(node, "input")
    depthwise = weight.shape[1] == 1 and weight.shape[0] == source.shape[axis]
    if depthwise and arguments(node).get("bias") is None:
        found.append(Way({source.index: along(vector, axis, source.shape)}))
    return found


def _transposed_convolution(flow: Flow, node: Node, asked: Asked) -> list[Way]:
    weight = flow.operand(node, "weight")
    groups = arguments(node).get("groups", 1)
    vector = channel_vector(asked[0], len(node.shape) - 1 - spatial_axes(node))
    inputs, outputs = weight.shape[0] // groups, weight.shape[1]
    table = vector.view(groups, 1, outputs).expand(groups, inputs, outputs).reshape(-1, outputs)
    ids = table[(...,) + (None,) * (len(weight.shape) - 2)].expand(*weight.shape)
    return [_affine(node, vector, ids)]


def _linear(flow: Flow, node: Node, asked: Asked) -> list[Way]:
    weight = flow.operand(node, "weight")
    try:
        vector = channel_vector(asked[0], len(node.shape) - 1)
        return [_affine(node, vector, along(vector, 0, weight.shape))]
    except Refusal:
        if arguments(node).get("bias") is not None:
            raise Refusal("has a bias on another axis than the gate") from None
    # Without a bias it mixes along its own axis only; the gate, on another one, passes.
    source = flow.operand(node, "input")
    return [Way({source.index: _constant_along(asked[0], -1, source.shape)})]


def _constant_along(ids: Tensor, axis: int, shape: tuple[int, ...]) -> Tensor:
    """`ids`, one id along `axis`, for a tensor of `shape`, which differs on that axis only."""
    one = ids.amax(axis, keepdim=True)
    if bool(((ids != one) & (ids != NOT_READ)).any()):
        raise Refusal("mixes channels that have different gates")
    others = [size for place, size in enumerate(shape) if place != len(shape) + axis]
    if others != [size for place, size in enumerate(ids.shape) if place != ids.dim() + axis]:
        raise Refusal("broadcasts its operands")
    return one.expand(*shape)


def _matrix_product(flow: Flow, node: Node, asked: Asked) -> list[Way]:
    left, right = (flow.nodes[ref.index] for ref in references(node)[:2])
    if left.index == right.index:
        raise Refusal("multiplies the tensor with itself")
    found = []
    with suppress(Refusal):  # a gate on the columns: they are those of the right operand
        if len(right.shape) == 2:
            ids = along(channel_vector(asked[0], len(node.shape) - 1), 1, right.shape)
        else:
            ids = _constant_along(asked[0], -2, right.shape)
        found.append(Way({right.index: ids}))
    with suppress(Refusal):  # a gate on the rows: they are those of the left one
        found.append(Way({left.index: _constant_along(asked[0], -1, left.shape)}))
    if not found:
        raise Refusal("mixes channels that have different gates")
    return found


def _biased_product(flow: Flow, node: Node, asked: Asked) -> list[Way]:
    """`bias + input @ weight`, the linear layer of GPT-2: its outputs are the weight's columns."""
    weight, bias = (flow.operand(node, name) for name in ("weight", "bias"))
    vector = channel_vector(asked[0], 1)
    ids = {weight.index: along(vector, 1, weight.shape)}
    return [Way({**ids, bias.index: broadcast_from(asked[0], bias.shape)})]


def _experts(flow: Flow, node: Node, asked: Asked) -> list[Way]:
    """The product of each group of rows with the matrix of its expert: the gate goes into all."""
    weight = flow.nodes[references(node)[1].index]
    if len(weight.shape) != 3:
        raise Refusal("multiplies groups of rows with one matrix")
    return [Way({weight.index: along(channel_vector(asked[0], 1), 2, weight.shape)})]


def _added_rows(flow: Flow, node: Node, asked: Asked) -> list[Way]:
    """`total.index_add(0, index, rows)`: rows go where the run computed, to others in another run,
    so that all must have one gate."""
    total, axis, index, rows = (node.arguments + tuple(node.keywords.values()))[:4]
    if axis != 0 or not (
        isinstance(total, Ref) and isinstance(index, Ref) and isinstance(rows, Ref)
    ):
        raise Refusal("adds along another axis than the first")
    row = asked[0].amax(0)
    if bool(((asked[0] != row) & (asked[0] != NOT_READ)).any()):
        raise Refusal("adds rows that have different gates")
    shape = flow.nodes[rows.index].shape
    ids = {total.index: asked[0], rows.index: row.expand(shape)}
    return [Way(ids, chosen_by_values=True)]


def _zeros(flow: Flow, node: Node, asked: Asked) -> list[Way]:
    """Nothing has to be scaled: it is zero with any gate."""
    del flow, node, asked
    return [Way({})]


def _attention(flow: Flow, node: Node, asked: Asked) -> list[Way]:
    value = flow.operand(node, "value")
    if value.shape[:-2] != node.shape[:-2]:
        raise Refusal("shares its values between heads")
    return [Way({value.index: _constant_along(asked[0], -2, value.shape)})]


def _multi_head_attention(flow: Flow, node: Node, asked: Asked) -> list[Way]:
    """Into the output projection: after the value projection, channels are mixed once more."""
    if set(asked) != {0}:
        raise Refusal("hands out its attention matrix as well")
    weight, bias = flow.operand(node, "out_proj_weight"), arguments(node).get("out_proj_bias")
    vector = channel_vector(asked[0], len(node.shape) - 1)
    ids = {weight.index: along(vector, 0, weight.shape)}
    if isinstance(bias, Ref):
        ids[bias.index] = vector
    return [Way(ids)]


def _weight_norm(flow: Flow, node: Node, asked: Asked) -> list[Way]:
    length = flow.operand(node, "g")
    return [Way({length.index: broadcast_from(asked[0], length.shape)})]


LAYER_RULES: dict[str, Rule] = {
    **dict.fromkeys(("batch_norm", "group_norm", "instance_norm"), _norm),
    **dict.fromkeys(("layer_norm", "rms_norm"), _norm),
    **{f"conv{n}d": _convolution for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": _transposed_convolution for n in (1, 2, 3)},
    **dict.fromkeys(("matmul", "bmm", "mm"), _matrix_product),
    "grouped_mm": _experts,
    "index_add": _added_rows,
    **dict.fromkeys(("zeros", "zeros_like", "new_zeros"), _zeros),
    "linear": _linear,
    "addmm": _biased_product,
    "scaled_dot_product_attention": _attention,
    "multi_head_attention_forward": _multi_head_attention,
    "weight_norm": _weight_norm,
}
