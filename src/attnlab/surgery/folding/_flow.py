"""The recorded graph as folding sees it: all readers of a tensor, arguments by name, replay."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from attnlab._types import Function
from attnlab.residuals import operations
from attnlab.residuals.graph import Graph, Node, Ref, reads
from attnlab.surgery.folding._ids import Refusal

# Built-in functions have no signature that could be asked.
_CONVOLUTION = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
_TRANSPOSED = ("input", "weight", "bias", "stride", "padding", "output_padding", "groups")
_BUILTIN = {
    "linear": ("input", "weight", "bias"),
    "addmm": ("bias", "input", "weight"),
    "batch_norm": ("input", "weight", "bias", "running_mean", "running_var"),
    "layer_norm": ("input", "normalized_shape", "weight", "bias"),
    "rms_norm": ("input", "normalized_shape", "weight", "eps"),
    "group_norm": ("input", "num_groups", "weight", "bias"),
    "instance_norm": ("input", "weight", "bias", "running_mean", "running_var"),
    "scaled_dot_product_attention": ("query", "key", "value"),
    "weight_norm": ("v", "g", "dim"),
    "pad": ("input", "pad", "mode", "value"),
    **{f"conv{n}d": _CONVOLUTION for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": _TRANSPOSED for n in (1, 2, 3)},
}


def names(text: str) -> frozenset[str]:
    """A set of operations, written as one text."""
    return frozenset(text.split())


class Flow:
    """A graph with the readers of each tensor, parameters included."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes = graph.nodes
        self.readers: dict[int, list[int]] = defaultdict(list)
        for node in graph.nodes:
            for index in dict.fromkeys(reads(node)):
                self.readers[index].append(node.index)

    def operand(self, node: Node, name: str) -> Node:
        """The tensor that the call takes as its argument `name`."""
        return self.nodes[arguments(node)[name].index]

    def matters(self, index: int) -> bool:
        """Return whether anything reads the values of this tensor after it was read."""
        node = self.nodes[index]
        return node.operation != "write_view" or bool(self.readers[index])


def arguments(node: Node) -> dict[str, Any]:
    """The call's arguments by name."""
    try:
        if node.function is None:
            return {}
        bound = _signature(node.function).bind_partial(*node.arguments, **node.keywords)
        return dict(bound.arguments)
    except (TypeError, ValueError):
        names = _BUILTIN.get(node.operation, ())
        return {**dict(zip(names, node.arguments, strict=False)), **node.keywords}


@lru_cache(maxsize=256)
def _signature(function: Function) -> inspect.Signature:
    """Of the few functions that layers call, hundreds of times."""
    return inspect.signature(function)


def viewed(nodes: Sequence[Node], node: Node) -> tuple[Node, list[Node]]:
    """Return what `node` is a view of, and the changes of layout that make it one, the last
    first."""
    layouts = []
    while node.kind == "layout" and len(node.inputs) == 1:
        layouts.append(node)
        node = nodes[node.inputs[0]]
    return node, layouts


def spatial_axes(node: Node) -> int:
    """The number in `conv2d`, `max_pool1d`."""
    return next(int(c) for c in node.operation if c.isdigit())


def references(node: Node) -> list[Ref]:
    """The tensor arguments of the call, in order."""
    leaves = tree_leaves((node.arguments, node.keywords))
    return [leaf for leaf in leaves if isinstance(leaf, Ref)]


def replayed(
    flow: Flow, node: Node, inputs: Sequence[int], tensors: Sequence[Tensor]
) -> list[Tensor]:
    """The tensors that the node's call returns for other `tensors` in the place of `inputs`."""
    given = dict(zip(inputs, tensors, strict=True))

    def substitute(reference: Ref) -> Tensor:
        if reference.index in given:
            return given[reference.index]
        if node.operation in operations.READS_FIRST_ONLY:
            return torch.empty(flow.nodes[reference.index].shape, dtype=torch.float64)
        raise Refusal("selects by a computed index")

    return [leaf for leaf in tree_leaves(node.replayed(substitute)) if isinstance(leaf, Tensor)]
