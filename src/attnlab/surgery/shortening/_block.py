"""Whether nothing is left of a whole block but its shortcut, once its steps are gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attnlab.residuals import Step
from attnlab.residuals.graph import Graph, Node


def empty_block(graph: Graph, step: Step, chosen: Sequence[Step]) -> tuple[str, str] | None:
    """The outermost module of the step's block that only hands on what it is given when the
    `chosen` steps are left out, and what takes its place: `identity` or `relu`."""
    shortcuts = _sums_with_nothing(graph)
    shortcuts |= {each.graph_node: each.shortcut_node for each in chosen}
    for name, _ in graph.nodes[step.graph_node].inside:
        if _is_block(name, step.name) and graph.calls[name] == 1:
            word = _word(graph, name, shortcuts)
            if word is not None:
                return name, word
    return None


def _sums_with_nothing(graph: Graph) -> dict[int, int]:
    """Additions of zeros, which steps that were removed before have left, and what they keep."""
    return {
        node.index: node.data_inputs[0]
        for node in graph.nodes
        if node.adds_same_shapes
        and len(node.data_inputs) == 1
        and any(graph.nodes[i].operation == "zeros_like" for i in node.inputs)
    }


def _is_block(name: str, block: str) -> bool:
    return bool(block) and (name == block or name.startswith(f"{block}."))


def _word(graph: Graph, name: str, shortcuts: Mapping[int, int]) -> str | None:
    inside = {node.index for node in graph.nodes if (name, 0) in node.inside and node.data}
    output = next((n for n in graph.nodes if (name, 0) in n.produced_by), None)
    if output is None or output.index not in inside or _leaks(graph, inside, output):
        return None
    last = _followed(output.index, shortcuts)
    if last not in inside:
        return "identity"
    node = graph.nodes[last]
    if node.operation != "relu" or len(node.data_inputs) != 1:
        return None
    given = _followed(node.data_inputs[0], shortcuts)
    if given in inside:
        return None
    # relu(relu(x)) is relu(x), to the last bit.
    return "identity" if _not_negative(graph, given) else "relu"


def _leaks(graph: Graph, inside: set[int], output: Node) -> bool:
    """Whether something outside reads more of the module than its output."""
    return any(
        not inside.issuperset(graph.readers(index)) for index in inside if index != output.index
    )


def _followed(index: int, shortcuts: Mapping[int, int]) -> int:
    """What an addition is when its branch is left out."""
    while index in shortcuts:
        index = shortcuts[index]
    return index


def _not_negative(graph: Graph, index: int) -> bool:
    node = graph.nodes[index]
    while node.operation.startswith("max_pool") and len(node.data_inputs) == 1:
        node = graph.nodes[node.data_inputs[0]]
    return node.operation == "relu"
