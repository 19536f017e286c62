"""How each operation hands the gate of its output on to what made the output.

A rule answers: to have this output multiplied by these gates, which inputs must be multiplied by
which gates? Some operations offer several ways (a product: either factor).
"""

from __future__ import annotations

import re
from math import prod

from attnlab.residuals import operations
from attnlab.residuals.graph import Node, Ref
from attnlab.surgery.folding._flow import Flow, arguments, names, references, replayed, spatial_axes
from attnlab.surgery.folding._ids import (
    NOT_READ,
    Refusal,
    along,
    broadcast_from,
    channel_vector,
    pull_back,
)
from attnlab.surgery.folding._layer_rules import LAYER_RULES
from attnlab.surgery.folding._way import Asked, Rule, Way

_UNCHANGED = names(
    """contiguous clone to float half bfloat16 double type type_as identity detach neg
    dropout feature_dropout dropout1d dropout2d dropout3d whole"""
)  # whole: a gate, which scales, too; those that depend on the input are barriers
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


def ways(flow: Flow, node: Node, asked: Asked) -> list[Way]:
    """Return all ways to give the outputs of `node` the ids `asked`, the best first."""
    return _rule(node)(flow, node, asked)


def selects(node: Node) -> bool:
    """Return whether the operation reads some elements of its input and leaves others."""
    return node.operation in operations.SLICES and node.function is not None


def moves(node: Node) -> bool:
    """Return whether the operation only moves, copies or averages elements."""
    return node.operation in _MOVES


def unchanged(node: Node) -> bool:
    """Return whether the operation keeps every element where it is, or drops it."""
    return node.operation in _UNCHANGED


def homogeneous(node: Node) -> bool:
    """Return whether the operation lets a scaling through that is not negative."""
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
        return [_rows(flow, node, asked)]
    found = pull_back(
        lambda *tensors: replayed(flow, node, sources, tensors),
        [flow.nodes[source].shape for source in sources],
        asked,
    )
    return [Way(dict(zip(sources, found, strict=True)))]


def _rows(flow: Flow, node: Node, asked: Asked) -> Way:
    """`x[index]`, with an index that was computed (the tokens of an expert): any rows may be read
    in another run, so all of them have the gate, which must be the same for each."""
    given = [each for each in node.arguments if isinstance(each, Ref)]
    if node.operation != "getitem" or not len(given) == len(node.arguments) == 2:
        raise Refusal("selects by a computed index")
    source, index = (flow.nodes[each.index] for each in given)
    ids = asked[0].flatten(0, len(index.shape) - 1) if index.shape else asked[0][None]
    row = ids.amax(0)
    if bool(((ids != row) & (ids != NOT_READ)).any()) or row.shape != source.shape[1:]:
        raise Refusal("selects by a computed index")
    return Way({source.index: row.expand(source.shape)})


def _operands(node: Node) -> list[object]:
    """The two operands of an elementwise operation, as they are given: by place or by name."""
    named = {name: [node.keywords[name]] for name in ("input", "other") if name in node.keywords}
    return [*named.get("input", ()), *node.arguments[:2], *named.get("other", ())]


def _tensors(operands: list[object]) -> list[int]:
    """The nodes among them."""
    return [each.index for each in operands if isinstance(each, Ref)]


def _sum(flow: Flow, node: Node, asked: Asked) -> list[Way]:
    operands = _operands(node)
    tensors = _tensors(operands)
    numbers = [each for each in operands if not isinstance(each, Ref) and each != 0]
    if len(numbers) == 1 and len(tensors) == 1 and not flow.nodes[tensors[0]].data:
        number = numbers[0]
        if isinstance(number, int | float):
            # `number - p`, too: it is multiplied where `p - number` is.
            offset = -number if node.operation == "sub" else number
            ids = broadcast_from(asked[0], flow.nodes[tensors[0]].shape)
            return [Way({tensors[0]: ids}, offset=offset)]
    if numbers:
        raise Refusal("adds a number that the gate would have to scale")
    return [Way({each: broadcast_from(asked[0], flow.nodes[each].shape) for each in set(tensors)})]


def _product(flow: Flow, node: Node, asked: Asked) -> list[Way]:
    tensors = _tensors(_operands(node))
    if node.operation == "div":  # of tensors: `1 / x` is another operation
        tensors = tensors[:1]
    if len(tensors) == 2 and tensors[0] == tensors[1]:
        raise Refusal("multiplies the tensor with itself")
    # A learned scale takes the gate best; then the factor of full shape, not itself a gate.
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


_RULES: dict[str, Rule] = {
    "add": _sum,
    "sub": _sum,
    "mul": _product,
    "div": _product,
    **LAYER_RULES,
}
