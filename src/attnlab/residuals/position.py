"""Where a tensor lies: on the branch of which step, and whether at its end."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from attnlab.residuals.graph import Graph, Node
from attnlab.residuals.site import Position
from attnlab.residuals.step import Step


def position_of(
    graph: Graph, node: Node | None, steps: Sequence[Step]
) -> tuple[Step | None, Position]:
    """The step on whose branch the tensor `node` lies, and where there; of nested steps the
    innermost. A tensor that is not there lies elsewhere."""
    if node is None:
        return None, "elsewhere"
    on = [
        step for step in steps if _on_branch(graph, node.index, step)
    ]  # in the order of execution
    for step in on:
        if _ends(graph, node.index, step):
            return step, "end"
    return (on[0], "inside") if on else (None, "elsewhere")


def _on_branch(graph: Graph, node: int, step: Step) -> bool:
    leads_to = node == step.branch_node or graph.computed_from(step.branch_node, node)
    return leads_to and graph.computed_from_constant(node, step.state_node)


def _ends(graph: Graph, node: int, step: Step) -> bool:
    """Whether what follows up to the addition only re-arranges the values, or is another gate."""
    size = prod(graph.nodes[node].shape)
    return all(
        (each.kind == "layout" and prod(each.shape) == size) or each.operation == "whole"
        for each in graph.between(node, step.branch_node)
    )
