"""How each operation hands the gate of its output on to what made the output.

A rule answers: to have this output multiplied by these gates, which inputs must be multiplied by
which gates? Some operations offer several ways (a product: either factor).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

from torch import Tensor

from attnlab.fold._flow import Flow, arguments, names, references, replayed
from attnlab.fold._ids import NOT_READ, Refusal, along, channel_vector, pull_back
from attnlab.insert import _operations as operations
from attnlab.insert._graph import Node, Ref


@dataclass(frozen=True)
class Way:
    """The ids asked of inputs (by node), and whether it takes gates that are not negative."""

    asked: Mapping[int, Tensor]
    not_negative: bool = False


Asked = Mapping[int, Tensor]
Rule = Callable[[Flow, Node, Asked], list[Way]]

_UNCHANGED = names(
    """contiguous clone to float half bfloat16 double type type_as identity detach neg
    dropout feature_dropout dropout1d dropout2d dropout3d"""
)
JOINS = names("cat stack hstack vstack dstack")
_MOVES = (
    ((operations.LAYOUT | operations.SLICES | operations.SPLITS) - _UNCHANGED - {"alpha_dropout"})
    | JOINS
    | names(
        """flip fliplr flipud repeat tile repeat_interleave broadcast_to ravel rot90 pixel_shuffle
        pixel_unshuffle channel_shuffle native_channel_shuffle unfold mean sum pad interpolate
        upsample avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d
        adaptive_avg_pool3d"""
    )
)
_HOMOGENEOUS = names("relu leaky_relu abs prelu")
_MAX_POOL = re.compile(r"^(?:adaptive_)?max_pool([123])d$")
_AVERAGING_MODES = ("nearest", "nearest-exact", "area", "linear", "bilinear", "trilinear")
_CHANNELS_SECOND = frozenset(("batch_norm", "group_norm", "instance_norm"))
_CHANNELS_LAST = frozenset(("layer_norm", "rms_norm"))


def ways(flow: Flow, node: Node, asked: Asked) -> list[Way]:
    """All ways to give the outputs of `node` the ids `asked`, the best first."""
    return _rule(node)(flow, node, asked)


def selects(node: Node) -> bool:
    """Whether the operation reads some elements of its input and leaves others."""
    return node.operation in operations.SLICES and node.function is not None


def moves(node: Node) -> bool:
    """Whether the operation only moves, copies or averages elements."""
    return node.operation in _MOVES


def unchanged(node: Node) -> bool:
    """Whether the operation keeps every element where it is, or drops it."""
    return node.operation in _UNCHANGED


def homogeneous(node: Node) -> bool:
    """Whether the operation lets a scaling through that is not negative."""
    return node.operation in _HOMOGENEOUS or bool(_MAX_POOL.match(node.operation))


def _rule(node: Node) -> Rule:
    operation = node.operation
    if unchanged(node):
        return _unchanged
    if operation in _HOMOGENEOUS:
        return _homogeneous
    if _MAX_POOL.match(operation):
        return _max_pool
    if moves(node):
        return _moved
    if operation in _CHANNELS_SECOND or operation in _CHANNELS_LAST:
        return _norm
    if operation.startswith("conv_transpose"):
        return _transposed_convolution
    if node.kind == "convolution" and operation.startswith("conv"):
        return _convolution
    return _RULES.get(operation, _not_equivariant)


def _not_equivariant(flow: Flow, node: Node, asked: Asked) -> list[Way]:
    del flow, node, asked
    raise Refusal("does not let a scaling of its input through")


def _unchanged(flow: Flow, node: Node, asked: Asked) -> list[Way]:
    del flow
    return [Way({node.inputs[0]: asked[0]})]


def _homogeneous(flow: Flow, node: Node, asked: Asked) -> list[Way]:
    del flow
    return [Way({node.inputs[0]: asked[0]}, not_negative=True)]


def _max_pool(flow: Flow, node: Node, asked: Asked) -> list[Way]:
    axis = len(node.shape) - 1 - spatial_axes(node)
    vector = channel_vector(asked[0], axis)
    source = node.inputs[0]
    return [Way({source: along(vector, axis, flow.nodes[source].shape)}, not_negative=True)]


def spatial_axes(node: Node) -> int:
    """The number in `conv2d`, `max_pool1d`."""
    return next(int(c) for c in node.operation if c.isdigit())


def check_linear(node: Node) -> None:
    """Refuse padding with a value and interpolation with negative coefficients."""
    given = arguments(node)
    if node.operation == "pad" and given.get("value") not in (None, 0, 0.0):
        raise Refusal("adds a border that is not zero")
    if node.operation in ("interpolate", "upsample"):
        mode = given.get("mode", "nearest")
        if mode not in _AVERAGING_MODES:
            raise Refusal(
                f"interpolates with mode {mode!r}, whose coefficients are partly negative"
            )


def _moved(flow: Flow, node: Node, asked: Asked) -> list[Way]:
    check_linear(node)
    sources = list(dict.fromkeys(ref.index for ref in references(node)))
    if node.operation in operations.READS_FIRST_ONLY:
        sources = sources[:1]
    elif len(sources) > 1 and node.operation not in JOINS:
        raise Refusal("selects by a computed index")
    found = pull_back(
        lambda *tensors: replayed(flow, node, sources, tensors),
        [flow.nodes[source].shape for source in sources],
        asked,
    )
    return [Way(dict(zip(sources, found, strict=True)))]


def broadcast_from(ids: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The ids of an operand of `shape` that was broadcast to the shape of `ids`."""
    if tuple(ids.shape) == shape:
        return ids
    return pull_back(lambda operand: [operand.expand(ids.shape)], [shape], {0: ids})[0]


def _operands(node: Node) -> tuple[list[int], list[object]]:
    """The tensor operands (nodes) and the plain numbers of an elementwise operation."""
    given = [*node.arguments[:2], *(node.keywords[k] for k in ("other",) if k in node.keywords)]
    tensors = [each.index for each in given if isinstance(each, Ref)]
    return tensors, [each for each in given if not isinstance(each, Ref)]


def _sum(flow: Flow, node: Node, asked: Asked) -> list[Way]:
    tensors, numbers = _operands(node)
    if any(number != 0 for number in numbers):
        raise Refusal("adds a number that the gate would have to scale")
    return [Way({each: broadcast_from(asked[0], flow.nodes[each].shape) for each in set(tensors)})]


def _product(flow: Flow, node: Node, asked: Asked) -> list[Way]:
    tensors, _ = _operands(node)
    if node.operation == "div":
        if not isinstance(node.arguments[0], Ref):
            raise Refusal("divides by the tensor to be scaled")
        tensors = tensors[:1]
    if len(tensors) == 2 and tensors[0] == tensors[1]:
        raise Refusal("multiplies the tensor with itself")
    # A learned scale takes the gate best; then the factor of full shape, which is no gate itself.
    order = sorted(tensors, key=lambda i: (flow.nodes[i].data, -prod(flow.nodes[i].shape)))
    found, reasons = [], []
    for each in order:
        try:
            found.append(Way({each: broadcast_from(asked[0], flow.nodes[each].shape)}))
        except Refusal as refusal:
            reasons.append(refusal)
    if not found:
        raise reasons[0]
    return found


def _affine(node: Node, vector: Tensor, weight: Tensor) -> Way:
    """Weight and bias of a layer, given the ids of both."""
    given = arguments(node)
    reference = given.get("weight")
    if not isinstance(reference, Ref):
        raise Refusal("has no affine parameters to take the gate")
    asked = {reference.index: weight}
    if isinstance(given.get("bias"), Ref):
        asked[given["bias"].index] = vector
    return Way(asked)


def _norm(flow: Flow, node: Node, asked: Asked) -> list[Way]:
    reference = arguments(node).get("weight")
    if not isinstance(reference, Ref):
        raise Refusal("has no affine parameters to take the gate")
    shape = flow.nodes[reference.index].shape
    if node.operation in _CHANNELS_SECOND:
        vector = channel_vector(asked[0], 1)
    else:
        vector = broadcast_from(asked[0], shape)
    return [_affine(node, vector, vector)]


def _convolution(flow: Flow, node: Node, asked: Asked) -> list[Way]:
    given = arguments(node)
    weight = flow.nodes[given["weight"].index]
    axis = len(node.shape) - 1 - spatial_axes(node)
    vector = channel_vector(asked[0], axis)
    found = [_affine(node, vector, along(vector, 0, weight.shape))]
    source = flow.nodes[given["input"].index]
    depthwise = weight.shape[1] == 1 and weight.shape[0] == source.shape[axis]
    if depthwise and given.get("bias") is None:
        found.append(Way({source.index: along(vector, axis, source.shape)}))
    return found


def _transposed_convolution(flow: Flow, node: Node, asked: Asked) -> list[Way]:
    given = arguments(node)
    weight = flow.nodes[given["weight"].index]
    groups = given.get("groups", 1)
    vector = channel_vector(asked[0], len(node.shape) - 1 - spatial_axes(node))
    inputs, outputs = weight.shape[0] // groups, weight.shape[1]
    table = vector.view(groups, 1, outputs).expand(groups, inputs, outputs).reshape(-1, outputs)
    ids = table[(...,) + (None,) * (len(weight.shape) - 2)].expand(*weight.shape)
    return [_affine(node, vector, ids)]


def _linear(flow: Flow, node: Node, asked: Asked) -> list[Way]:
    given = arguments(node)
    weight = flow.nodes[given["weight"].index]
    try:
        vector = channel_vector(asked[0], len(node.shape) - 1)
        return [_affine(node, vector, along(vector, 0, weight.shape))]
    except Refusal:
        if given.get("bias") is not None:
            raise Refusal("has a bias on another axis than the gate") from None
    # Without a bias it mixes along its own axis only; the gate, on another one, passes.
    source = flow.nodes[given["input"].index]
    return [Way({source.index: _constant_along(asked[0], -1, source.shape)})]


def _constant_along(ids: Tensor, axis: int, shape: tuple[int, ...]) -> Tensor:
    """`ids`, one id along `axis`, for a tensor of `shape`, which differs on that axis only."""
    one = ids.amax(axis, keepdim=True)
    if bool(((ids != one) & (ids != NOT_READ)).any()):
        raise Refusal("mixes channels that have different gates")
    if one.dim() != len(shape):
        raise Refusal("broadcasts its operands")
    return one.expand(*shape)


def _matrix_product(flow: Flow, node: Node, asked: Asked) -> list[Way]:
    left, right = (flow.nodes[ref.index] for ref in references(node)[:2])
    if left.index == right.index:
        raise Refusal("multiplies the tensor with itself")
    found, reasons = [], []
    for operand, axis in ((right, -2), (left, -1)):
        try:
            if len(operand.shape) == 2 < len(node.shape) and axis == -2:
                ids = along(channel_vector(asked[0], len(node.shape) - 1), 1, operand.shape)
            else:
                ids = _constant_along(asked[0], axis, operand.shape)
            found.append(Way({operand.index: ids}))
        except (Refusal, RuntimeError) as reason:
            reasons.append(str(reason))
    if not found:
        raise Refusal("mixes channels that have different gates")
    return found


def _attention(flow: Flow, node: Node, asked: Asked) -> list[Way]:
    value = flow.nodes[arguments(node)["value"].index]
    if value.shape[:-2] != node.shape[:-2]:
        raise Refusal("shares its values between heads")
    return [Way({value.index: _constant_along(asked[0], -2, value.shape)})]


def _multi_head_attention(flow: Flow, node: Node, asked: Asked) -> list[Way]:
    """Into the output projection: behind the value projection, channels are mixed once more."""
    given = arguments(node)
    if set(asked) != {0}:
        raise Refusal("hands out its attention matrix as well")
    weight, bias = given["out_proj_weight"], given.get("out_proj_bias")
    vector = channel_vector(asked[0], len(node.shape) - 1)
    ids = {weight.index: along(vector, 0, flow.nodes[weight.index].shape)}
    if isinstance(bias, Ref):
        ids[bias.index] = vector
    return [Way(ids)]


def _weight_norm(flow: Flow, node: Node, asked: Asked) -> list[Way]:
    length = arguments(node)["g"]
    shape = flow.nodes[length.index].shape
    return [Way({length.index: broadcast_from(asked[0], shape)})]


_RULES: dict[str, Rule] = {
    "add": _sum,
    "sub": _sum,
    "mul": _product,
    "div": _product,
    "linear": _linear,
    "matmul": _matrix_product,
    "bmm": _matrix_product,
    "mm": _matrix_product,
    "scaled_dot_product_attention": _attention,
    "multi_head_attention_forward": _multi_head_attention,
    "weight_norm": _weight_norm,
}
