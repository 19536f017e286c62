"""How the branch of a step ends: whether in a norm, and whether an activation follows that.

Where it ends in norm → activation → addition (YOLO's blocks, EfficientNetV2's fused ones), a
constant gate after the activation cannot be folded, because `silu(v · x)` is not `v · silu(x)`;
after the norm, where the ASR paper puts it, it can.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from attnlab.residuals.graph import Graph, Node
from attnlab.residuals.operations import ACTIVATIONS
from attnlab.residuals.steps import Step

# Not of each value by itself.
_MIXING = frozenset(
    (
        "softmax",
        "log_softmax",
        "glu",
        "scaled_dot_product_attention",
        "multi_head_attention_forward",
    )
)


@dataclass(frozen=True)
class BranchEnd:
    """The norm that a branch ends in."""

    module: str
    """Called once, and returns exactly the norm's output."""
    node: Node
    """The norm's output."""
    activated: bool
    """Whether an activation lies between the norm and the addition."""


def branch_end(graph: Graph, step: Step, modules: Mapping[str, nn.Module]) -> BranchEnd | None:
    """The norm after which only activations and changes of layout follow up to the addition; None
    where the branch ends differently, or no module returns what the norm made."""
    node, readers, activated = graph.nodes[step.branch_node], 1, False
    while len(graph.users[node.index]) == readers:
        if _is_norm(node, modules):
            module = _returned_by(graph, node, modules)
            return BranchEnd(module, node, activated) if module else None
        source = _gated_by_itself(graph, node)
        if source is not None:
            node, readers, activated = source, 2, True
            continue
        if len(node.data_inputs) != 1:
            return None
        if node.operation in ACTIVATIONS - _MIXING:
            activated = True
        elif node.kind != "layout" and not (node.operation == "whole" and activated):
            return None  # a gate at the end of the branch stays in front of the next
        node, readers = graph.nodes[node.data_inputs[0]], 1
    return None


def _gated_by_itself(graph: Graph, node: Node) -> Node | None:
    """The x of `x * sigmoid(x)`: an activation, written out."""
    if node.operation != "mul" or len(node.data_inputs) != 2:
        return None
    for x, gate in (node.data_inputs, node.data_inputs[::-1]):
        made = graph.nodes[gate]
        elementwise = made.operation in ACTIVATIONS - _MIXING and made.shape == node.shape
        if elementwise and made.data_inputs == (x,) and graph.users[gate] == [node.index]:
            return graph.nodes[x]
    return None


def _is_norm(node: Node, modules: Mapping[str, nn.Module]) -> bool:
    """Return whether this is a norm, also one that is written out, as a frozen BatchNorm is; timm's
    norms that end in an activation are looked into."""
    if node.kind == "norm":
        return True
    returned_by = (type(modules[name]).__name__ for name, _ in node.produced_by)
    return node.operation == "add" and any("Norm" in name for name in returned_by)


def _returned_by(graph: Graph, node: Node, modules: Mapping[str, nn.Module]) -> str:
    """The innermost module, called once, that returned the tensor."""
    for name, _ in node.produced_by:
        if name and graph.calls[name] == 1:
            return "" if isinstance(modules[name], torch.jit.ScriptModule) else name
    return ""
