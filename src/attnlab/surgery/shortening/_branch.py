"""What of a recorded run belongs to one step's branch and to nothing else."""

from __future__ import annotations

from collections import defaultdict

from attnlab.residuals import Step
from attnlab.residuals.graph import Graph, Node


def branch_nodes(graph: Graph, step: Step) -> set[int]:
    """The nodes that only the branch of `step` needs; none where something else reads it."""
    if graph.readers(step.branch_node) != [step.graph_node]:
        return set()
    found = {step.branch_node}
    # Nodes stand in the order of execution, so a node's readers are decided before it.
    for index in range(step.branch_node - 1, -1, -1):
        node = graph.nodes[index]
        if node.data and node.operation != "input":
            readers = graph.readers(index)
            if readers and found.issuperset(readers):
                found.add(index)
    return found


def modules_within(graph: Graph, nodes: set[int]) -> list[str]:
    """The outermost modules all of whose work is among `nodes`."""
    inside: dict[str, bool] = defaultdict(lambda: True)
    for node in graph.nodes:
        if node.data:
            for name, _ in node.inside:
                inside[name] &= node.index in nodes
    whole = [name for name, within in inside.items() if within and name]
    return [name for name in whole if not any(name.startswith(f"{other}.") for other in whole)]


def end_of(graph: Graph, branch: Node, owner: str) -> str | None:
    """The outermost module, called once, that the module `owner` runs and whose output is the
    branch, or is but for its layout: zeros are zeros in any."""
    names = [
        name
        for name, _ in branch.produced_by
        if graph.calls[name] == 1 and name != owner and not f"{owner}.".startswith(f"{name}.")
    ]
    if names:
        return names[-1]
    if branch.kind != "layout" or len(branch.data_inputs) != 1:
        return None
    return end_of(graph, graph.nodes[branch.data_inputs[0]], owner)


def parameters_left(graph: Graph, nodes: set[int], gone: list[str]) -> list[str]:
    """Parameters that only `nodes` read, of modules that are not among those `gone`."""
    read: dict[str, bool] = defaultdict(lambda: True)
    for node in graph.nodes:
        for index in node.inputs:
            name = graph.nodes[index].name
            if name:
                read[name] &= node.index in nodes
    return [
        name
        for name, only in read.items()
        if only and not any(name.startswith(f"{module}.") for module in gone)
    ]
