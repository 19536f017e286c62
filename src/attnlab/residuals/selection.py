"""Where a network begins to select: what it computed before that can be compared, whatever is
chosen from it.

A detector returns a set: how many boxes there are, and in which order, jumps when a score moves by
a rounding error. What it selects from, logits and features, moves as little as the weights do. What
is selected by the inputs alone, such as padding that is left out, is the same whatever the weights.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from attnlab.residuals.example import Example, run_once
from attnlab.residuals.graph import Graph, Node, Ref

Call = tuple[str, int]
"""A module's name, and which of its calls in one run, counted from 0."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_COMPARES = _names(
    """gt ge lt le eq ne greater greater_equal less less_equal not_equal isfinite isnan isinf
    logical_and logical_or logical_not logical_xor and or xor invert bitwise_and bitwise_or
    bitwise_not any all bool"""
)
_ORDERS = _names(
    """topk sort argsort msort argmax argmin kthvalue median mode searchsorted bucketize
    multinomial bernoulli"""
)
_ROUNDS = _names("round floor ceil trunc sign long int")
# How many elements they return depends on values.
_MAKES_SETS = _names("nms batched_nms nonzero argwhere masked_select unique")
_JUMPS = _COMPARES | _ORDERS | _ROUNDS | _MAKES_SETS


def returns_sets(graph: Graph) -> bool:
    """Return whether something in the run has a number of elements that depends on computed
    values."""
    return any(_behind(graph, _makes_a_set))


def work_depends_on_values(graph: Graph) -> bool:
    """Return whether layers work on a set, so that how much they compute depends on what was
    selected."""
    layers = ("convolution", "linear", "matmul")
    behind = _behind(graph, _makes_a_set)
    return any(behind[node.index] and node.kind in layers for node in graph.nodes)


def fixed_macs(model: nn.Module, example: Example) -> int | None:
    """Multiply-accumulates of `model` on an example; None where how much it computes depends on
    what it selects, as a detector's head computes more the more boxes are proposed."""
    run = run_once(model, example)
    return None if work_depends_on_values(run.graph) else run.macs


def before_selection(graph: Graph) -> tuple[Call, ...]:
    """The calls of modules that returned the last tensors before anything was selected from them:
    on the way back from all that the run ended in, the first that depend on no selection."""
    jumps = _behind(graph, _selects)
    found: set[int] = set()
    seen: set[int] = set()
    waiting = [node.index for node in graph.nodes if node.data and not graph.users[node.index]]
    while waiting:
        index = waiting.pop()
        if index in seen:
            continue
        seen.add(index)
        node = graph.nodes[index]
        if not jumps[index] and _returned_by(node) is not None:
            found.add(index)
        else:
            waiting.extend(node.data_inputs)
    calls = (_returned_by(graph.nodes[index]) for index in sorted(found))
    return tuple(dict.fromkeys(call for call in calls if call is not None))


def _behind(graph: Graph, starts: Callable[[Graph, Node], bool]) -> list[bool]:
    """Say of each node whether it is one that starts it, by values that parameters made, or was
    computed from one."""
    first = {node.index for node in graph.nodes if node.data and starts(graph, node)}
    if not first:  # as in most networks
        return [False] * len(graph.nodes)
    behind: list[bool] = []
    computed: list[bool] = []
    for node in graph.nodes:
        computed.append(node.operation == "parameter" or any(computed[i] for i in node.inputs))
        begins = computed[node.index] and node.index in first
        behind.append(begins or any(behind[i] for i in node.data_inputs))
    return behind


def _returned_by(node: Node) -> Call | None:
    """The innermost module of the network that returned it; a gate is none."""
    if node.operation == "whole":
        return None
    return next((call for call in node.produced_by if call[0]), None)


def _name(node: Node) -> str:
    return node.operation.strip("_")


def _makes_a_set(graph: Graph, node: Node) -> bool:
    name = _name(node)
    if name in _MAKES_SETS:
        return True
    if name == "where":
        return len(node.arguments) + len(node.keywords) == 1
    return name == "getitem" and any(_is_mask(graph, i) for i in _indices(node))


def _is_mask(graph: Graph, index: int) -> bool:
    node = graph.nodes[index]
    while (node.kind == "layout" or _name(node) == "getitem") and node.inputs:
        node = graph.nodes[node.inputs[0]]
    return _name(node) in _COMPARES


def _selects(graph: Graph, node: Node) -> bool:
    if _name(node) in _JUMPS or _makes_a_set(graph, node):
        return True
    if _name(node) in ("max", "min"):  # along an axis they say where, too
        return len(node.arguments) + len(node.keywords) > 1
    return False


def _indices(node: Node) -> list[int]:
    """The tensors by which an element is chosen."""
    if len(node.arguments) < 2:
        return []
    chosen = node.arguments[1]
    each = chosen if isinstance(chosen, tuple | list) else (chosen,)
    return [one.index for one in each if isinstance(one, Ref)]
