"""Additions of two tensors neither of which was computed from the other: a cheap arm without
activation is a projection shortcut; two equally heavy arms are a merge of branches, no step."""

from __future__ import annotations

from dataclasses import dataclass

from attnlab.residuals._update import Calls, caller, computes, has_cut, made_in, positions
from attnlab.residuals.graph import Graph, Node


@dataclass(frozen=True, order=True)
class Arm:
    """How much one operand computes since the common state; ordered by weight."""

    weight: int
    length: int
    layers: int
    nonlinear: int
    norms: int
    pools: int


def weigh(nodes: list[Node]) -> Arm:
    kinds = [node.kind for node in nodes]
    layers = kinds.count("convolution") + kinds.count("linear")
    unknown = sum(computes(node) for node in nodes if node.kind == "other")
    nonlinear = kinds.count("activation") + kinds.count("matmul") + unknown
    return Arm(
        layers + nonlinear, len(nodes), layers, nonlinear, kinds.count("norm"), kinds.count("pool")
    )


@dataclass(frozen=True)
class Projection:
    """A shortcut and a branch with the state that both were computed from."""

    state: int
    shortcut: int
    branch: int
    shortcut_nodes: list[Node]
    branch_nodes: list[Node]

    @property
    def is_free(self) -> bool:
        """Whether the shortcut has no layer and no norm."""
        light = weigh(self.shortcut_nodes)
        return light.layers + light.norms == 0

    @property
    def is_cheap(self) -> bool:
        """Whether the shortcut is so little beside the branch that it is one."""
        light, heavy = weigh(self.shortcut_nodes), weigh(self.branch_nodes)
        # A projection without an activation. Of 65 networks, mostly timm's, six lose steps
        # without this rule: ResNet-20 2 of 9, DLA-34 4 of 12.
        linear = light.nonlinear == 0 and heavy.nonlinear > 0
        # A shortcut that is only padded or laid out in another way, beside a branch that may be
        # linear, as no branch of these networks is.
        moved = light.weight + light.norms + light.pools == 0 and heavy.layers > 0
        # A projection of an activated state, as in DPN-68: its branches have three layers, so that
        # a margin of three would lose 4 of its 22 steps; a margin of one finds the same in all.
        one_layer = (
            light.layers <= 1
            and light.nonlinear <= 1
            and heavy.layers >= light.layers + 2
            and heavy.nonlinear > light.nonlinear
        )
        return linear or moved or one_layer


def projection(graph: Graph, node: Node, calls: Calls) -> Projection | None:
    """The roles of the operands of `node`, which is made in `calls`: the lighter arm is the
    shortcut. None where they have no state in common."""
    a, b = node.data_inputs
    arms = (_from_shortcut(graph, a, b, calls), _from_shortcut(graph, b, a, calls))
    found = [each for each in arms if each is not None]
    return min(found, key=lambda each: weigh(each.shortcut_nodes), default=None)


def _from_shortcut(graph: Graph, shortcut: int, branch: int, calls: Calls) -> Projection | None:
    """Walk back along the shortcut, as far as the caller made it, to the last tensor that the
    branch was made from, too, and from nothing that this tensor was made from."""
    around = caller(calls)
    state = shortcut
    while state != -1:
        branch_nodes = made_in(calls, graph, state, branch)
        if branch_nodes and not _is_passed_by(graph, state, branch_nodes, calls):
            break
        if graph.nodes[state].inside[: len(around)] != around:
            return None
        state = graph.dominator(state)
    if state in (-1, shortcut) or not graph.nodes[state].floating:
        return None
    shortcut_nodes = made_in(around, graph, state, shortcut)
    on_branch = {node.index for node in branch_nodes}
    if not shortcut_nodes or any(node.index in on_branch for node in shortcut_nodes):
        return None
    return Projection(state, shortcut, branch, shortcut_nodes, branch_nodes)


def _is_passed_by(graph: Graph, state: int, path: list[Node], calls: Calls) -> bool:
    """Whether the branch was also made, in `calls`, from what the state itself was made from there:
    `state` is one of several tensors (queries, keys, values) and not what the branch updates."""
    on_path = {node.index for node in path} | {state}
    beside = _history(graph, [i for n in path for i in n.data_inputs if i not in on_path], calls)
    return bool(beside & _history(graph, list(graph.nodes[state].data_inputs), calls))


def _history(graph: Graph, indices: list[int], calls: Calls) -> set[int]:
    """The tensors `indices` and what they were made from in `calls`, what was given included."""
    depth = len(calls)
    found: set[int] = set()
    waiting = list(indices)
    while waiting:
        index = waiting.pop()
        if index in found:
            continue
        found.add(index)
        if graph.nodes[index].inside[:depth] == calls:
            waiting.extend(graph.nodes[index].data_inputs)
    return found


def is_part_of_a_cell(graph: Graph, node: Node) -> bool:
    """Return whether the sum is concatenated with several other sums: the parts of a NAS cell."""
    for user in (graph.nodes[u] for u in graph.users[node.index]):
        if user.operation == "cat":
            sums = [i for i in user.data_inputs if graph.nodes[i].operation == "add"]
            if len(sums) > 2:
                return True
    return False


def passes_lower_resolution(graph: Graph, node: Node, found: Projection) -> bool:
    """Return whether an arm comes up from a resolution below the state's and the sum's: a pyramid
    fuses its levels so."""
    least = min(positions(graph.nodes[found.state]), positions(node))

    def lower(each: Node) -> bool:
        return computes(each) and positions(each) < least

    arms = (found.shortcut_nodes, found.branch_nodes)
    return any(has_cut(found.state, arm, lower) for arm in arms)
