"""Walk on from a gate to the layers that read the gated tensor: their input channels can take it.

Needed where nothing before the gate can: squeeze-and-excitation between an activation that is not
positively homogeneous and a projecting convolution, a norm without affine parameters.
"""

from __future__ import annotations

from collections.abc import Set

import torch
from torch import Tensor

from attnlab.residuals.graph import Node, Ref, reads
from attnlab.surgery.folding._flow import (
    Flow,
    arguments,
    references,
    replayed,
    spatial_axes,
)
from attnlab.surgery.folding._ids import NOT_READ, Refusal, along, channel_vector, push_forward
from attnlab.surgery.folding._rules import JOINS, check_linear, homogeneous, moves, unchanged
from attnlab.surgery.folding._walk import Demand, described


def walk_on(
    flow: Flow, start: int, ids: Tensor, keep: int, barriers: Set[int], reader: int | None = None
) -> tuple[list[Demand], frozenset[int]]:
    """Return what the readers of the gated tensor `start`, or this one of them, must ask of their
    weights, and the ids whose gates must not be negative. Raises `Refusal` where one cannot take
    the gate.
    """
    carried: dict[int, Tensor] = {start: ids}
    demands: list[Demand] = []
    not_negative: set[int] = set()
    for node in flow.nodes[start + 1 :]:
        gated = [source for source in reads(node) if source in carried]
        if not gated or not flow.matters(node.index):
            continue
        if gated == [start] and reader not in (None, node.index):
            continue
        if node.index in barriers:
            raise Refusal("a gate that depends on the input follows")
        weight = _absorbed(flow, node, gated[0], carried[gated[0]])
        if weight is not None:
            demands.append(weight)
            continue
        try:
            carried[node.index] = _carried(flow, node, carried, keep)
        except Refusal as reason:
            raise Refusal(f"{described(node)} {reason}") from None
        if homogeneous(node):
            not_negative |= set(carried[node.index].unique().tolist()) - {NOT_READ, keep}
    if not all(flow.readers[index] and index not in flow.graph.outputs for index in carried):
        raise Refusal("the gated tensor leaves the network")
    return demands, frozenset(not_negative)


def _absorbed(flow: Flow, node: Node, source: int, ids: Tensor) -> Demand | None:
    """What a convolution or linear layer asks of its weight to read `source` without the gate."""
    convolution = node.kind == "convolution" and node.operation.startswith("conv")
    if not convolution and node.operation not in ("linear", "addmm"):
        return None
    given = arguments(node)
    weight = given["weight"]
    if not isinstance(weight, Ref) or given["input"] != Ref(source):
        raise Refusal(f"{described(node)} reads the gated tensor as its weight")
    shape = flow.nodes[weight.index].shape
    if not convolution:
        inputs = 1 if node.operation == "linear" else 0
        return Demand(node.index, weight.index, along(channel_vector(ids, -1), inputs, shape))
    vector = channel_vector(ids, ids.dim() - 1 - spatial_axes(node))
    if node.operation.startswith("conv_transpose"):
        return Demand(node.index, weight.index, along(vector, 0, shape))
    groups = given.get("groups", 1)
    per_group = vector.view(groups, 1, -1).expand(groups, shape[0] // groups, -1).flatten(0, 1)
    table = per_group[(...,) + (None,) * (len(shape) - 2)]
    return Demand(node.index, weight.index, table.expand(*shape))


def _carried(flow: Flow, node: Node, carried: dict[int, Tensor], keep: int) -> Tensor:
    """The ids of the output of `node`, an operation that lets the gate through."""
    if node.place is not None:
        raise Refusal("is split, which is only followed back")
    sources = [ref.index for ref in references(node)]
    if unchanged(node):
        return carried[node.inputs[0]]
    if homogeneous(node):
        return _homogeneous(node, carried[sources[0]])
    if moves(node):
        return _moved(flow, node, sources, carried, keep)
    if node.operation in ("mul", "div"):
        gated = [source for source in sources if source in carried]
        if len(gated) != 1 or (node.operation == "div" and sources[0] not in carried):
            raise Refusal("does not let a scaling of its input through")
        return carried[gated[0]].expand(*node.shape)
    raise Refusal("does not let a scaling of its input through")


def _homogeneous(node: Node, ids: Tensor) -> Tensor:
    if tuple(ids.shape) == node.shape:
        return ids
    axis = len(node.shape) - 1 - spatial_axes(node)
    return along(channel_vector(ids, axis), axis, node.shape)


def _moved(
    flow: Flow, node: Node, sources: list[int], carried: dict[int, Tensor], keep: int
) -> Tensor:
    check_linear(node)
    if node.operation not in JOINS and len(sources) > 1:
        raise Refusal("selects by a computed index")
    sources = list(dict.fromkeys(sources))
    inputs = [
        carried[source] if source in carried else torch.full(flow.nodes[source].shape, keep)
        for source in sources
    ]
    outputs = push_forward(lambda *tensors: replayed(flow, node, sources, tensors), inputs)
    if len(outputs) != 1:
        raise Refusal("is split, which is only followed back")
    return outputs[0]
