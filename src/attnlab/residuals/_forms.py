"""A state in other forms: the tensor that is added to need not be the one that the branch read.

It may be the same values re-arranged or scaled, the same slice taken another time, a slice of what
the branch read (the class token), or several of those put together again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from math import prod

from attnlab.residuals import operations
from attnlab.residuals.graph import Graph, Node

_SLICING = operations.SLICES | operations.SPLITS


def forms(graph: Graph, twins: Mapping[int, list[int]], index: int) -> list[int]:
    """What the tensor `index` is another form of, itself first. `twins` are those of the graph."""
    node = graph.nodes[index]
    found = [index]
    while _hands_on(node) and len(node.data_inputs) == 1:
        node = graph.nodes[node.data_inputs[0]]
        found.append(node.index)
    # `bias[experts]` is a slice of the bias, chosen by data, and not of the numbers that choose.
    if node.operation in operations.SLICES and node.data_inputs == node.inputs[:1]:
        found += twins[node.index]
        source = graph.nodes[node.data_inputs[0]]
        if source.operation not in operations.SPLITS:
            found.append(source.index)
    return list(dict.fromkeys(found))


def _hands_on(node: Node) -> bool:
    """Whether the values stay as they are but for their order and a factor; Python's `sum` begins
    with 0 + x."""
    if node.operation == "add":
        return any(type(each) is int and each == 0 for each in node.arguments)
    return node.kind in ("layout", "scale")


def twins(graph: Graph) -> dict[int, list[int]]:
    """For each slice of a tensor: all slices that were taken of it in the same way."""
    groups: dict[tuple[int, str, str], list[int]] = defaultdict(list)
    found = {}
    for node in graph.nodes:
        if node.operation in operations.SLICES and node.inputs:
            key = (node.inputs[0], node.operation, repr((node.arguments, node.keywords)))
            groups[key].append(node.index)
            found[node.index] = groups[key]
    return found


def parts(graph: Graph, index: int) -> tuple[int, ...]:
    """What the tensor `index` was put together from (class token, patches), if from several."""
    joined = graph.nodes[behind_layout(graph, index)]
    return joined.data_inputs if joined.operation == "cat" and len(joined.data_inputs) > 1 else ()


def behind_layout(graph: Graph, index: int) -> int:
    """The tensor that `index` is a re-arranged form of."""
    node = graph.nodes[index]
    while node.kind == "layout" and len(node.data_inputs) == 1:
        node = graph.nodes[node.data_inputs[0]]
    return node.index


def begins_with_slices(state: int, path: list[Node]) -> bool:
    """Whether nothing of what was made of the state on `path` read all of it."""
    return all(node.operation in _SLICING for node in path if state in node.inputs)


def positions(node: Node) -> int:
    """How many places a feature map has, over the batch."""
    return prod(node.shape) // max(node.shape[node.channels_on], 1) if node.shape else 1
