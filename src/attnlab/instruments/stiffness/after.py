"""What a network makes of the sum of a step before the next step reads it: an activation, a norm.

A post-norm network (BERT, the first Transformer) passes on `norm(x + f)`: the norm after the
addition is the one that makes the next state. In a pre-norm network the next step reads the sum
itself, and a norm reads it beside.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from attnlab.instruments.stiffness.norms import Activation
from attnlab.residuals import Step, StepKey, operations
from attnlab.residuals.graph import Graph, Node, Ref


def activation_after(model: nn.Module, graph: Graph, step: Step) -> Activation | None:
    """Return what is applied to the sum before anything else sees it, ready to be applied again."""
    if not step.activation:
        return None
    if step.activation == "relu":
        return torch.relu
    return _again(model, graph, step, graph.nodes[graph.users[step.graph_node][0]])


def norms_after(
    model: nn.Module, graph: Graph, steps: Sequence[Step]
) -> dict[StepKey, Activation | None]:
    """Find for every step the norm that makes the next state of its sum; None if there is none.

    The last step of a stage has no next state: a norm after it belongs to it if it does so after
    every other step of the stage. (Else it is the network's last norm, or a downsampling's.)
    """
    norms: dict[StepKey, Activation | None] = {step.key: None for step in steps}
    stages: dict[int, list[Step]] = {}
    for step in steps:
        stages.setdefault(step.stage, []).append(step)
    for members in stages.values():
        found = [_norm(graph, step) for step in members]
        makes = [
            node is not None and node.index == graph.before_layout(after.state_node)
            for node, (_, after) in zip(found, pairwise(members), strict=False)
        ]
        makes.append(bool(makes) and all(makes) and found[-1] is not None)
        for step, node, is_part in zip(members, found, makes, strict=True):
            if is_part and node is not None:
                norms[step.key] = _again(model, graph, step, node)
    return norms


def unexplained(
    graph: Graph, steps: Sequence[Step], norms: dict[StepKey, Activation | None]
) -> tuple[Step, Step, str] | None:
    """Two steps between which the state goes through more than an activation or a norm, and the
    operation; None if there are none."""
    for step, after in pairwise(steps):
        if step.stage != after.stage or norms[step.key] is not None:
            continue
        state = graph.before_layout(after.state_node)
        if state == step.graph_node or not graph.computed_from(state, step.graph_node):
            continue
        between = graph.between(step.graph_node, state)
        if step.activation and len(between) == 1:
            continue
        made = [n for n in between if n.kind != "layout" and n.operation not in operations.SLICES]
        if made:
            return step, after, min(made, key=lambda node: node.index).operation
    return None


def _norm(graph: Graph, step: Step) -> Node | None:
    readers = [graph.nodes[i] for i in graph.readers(step.graph_node)]
    if len(readers) == 1 and readers[0].kind == "norm" and readers[0].shape == step.shape:
        return readers[0]
    return None


def _again(model: nn.Module, graph: Graph, step: Step, node: Node) -> Activation:
    """The recorded call of `node`, on another sum."""
    stored = dict(model.named_parameters()) | dict(model.named_buffers())

    def again(total: Tensor) -> Tensor:
        def fill(given: Ref) -> Tensor:
            name = graph.nodes[given.index].name
            return total if given.index == step.graph_node else stored[name]

        result = node.replayed(fill)
        assert isinstance(result, Tensor)
        return result

    return again
