"""Tell the residual additions of a graph from all others.

An addition is a residual step when one operand (the branch) was computed from the other (the
shortcut). Where neither was, both come from a common state: the cheap arm without activation is a
projection shortcut; two equally heavy arms are a merge of branches, which is no step.
"""

from __future__ import annotations

from dataclasses import dataclass

from attnlab.insert.step import Kind
from attnlab.record import operations
from attnlab.record.graph import Graph, Node

_ATTENTION = "scaled_dot_product_attention"


@dataclass(frozen=True)
class Addition:
    """One addition of two same-shape feature maps, with its operands' roles."""

    node: int
    kind: Kind
    state: int
    """What the branch was computed from: x_t."""
    shortcut: int
    branch: int


def additions(graph: Graph) -> list[Addition]:
    """All same-shape additions of data in `graph`, in the order of execution."""
    found = [node for node in graph.nodes if node.data and _adds_features(graph, node)]
    partial_sums = _partial_sums(graph, {node.index for node in found})
    return [_classify(graph, node, partial_sums) for node in found]


def _adds_features(graph: Graph, node: Node) -> bool:
    if not node.adds_same_shapes or len(node.shape) < 2:
        return False
    if len(node.inputs) != 2 or node.inputs[0] == node.inputs[1]:
        return False
    return len(node.data_inputs) == 2 or _constant_shortcut(graph, node) is not None


def _constant_shortcut(graph: Graph, node: Node) -> int | None:
    """The operand that does not depend on the input but from which the other was computed.

    Learned query tokens start such a trajectory: the first state is the same for every input.
    """
    if len(node.data_inputs) != 1:
        return None
    branch = node.data_inputs[0]
    other = node.inputs[0] if node.inputs[1] == branch else node.inputs[1]
    if graph.nodes[other].operation == "parameter":
        return None  # a positional embedding or a bias
    return other if graph.computed_from_constant(branch, other) else None


def _partial_sums(graph: Graph, sums: set[int]) -> set[int]:
    """Additions whose only use is another addition: the inner ones of x + f + g."""
    return {
        operand
        for index in sums
        for operand in graph.nodes[index].data_inputs
        if operand in sums and len(graph.users[operand]) == 1
    }


def _terms(graph: Graph, index: int, partial_sums: set[int]) -> list[int]:
    if index not in partial_sums:
        return [index]
    return [
        term
        for operand in graph.nodes[index].data_inputs
        for term in _terms(graph, operand, partial_sums)
    ]


def _classify(graph: Graph, node: Node, partial_sums: set[int]) -> Addition:
    constant = _constant_shortcut(graph, node)
    if constant is not None:
        return Addition(node.index, "identity", constant, constant, node.data_inputs[0])
    a, b = node.data_inputs
    for shortcut, branch in ((a, b), (b, a)):
        for term in _terms(graph, shortcut, partial_sums):
            for state in (term, _behind_layout(graph, term)):
                if _is_step(graph, state, branch):
                    return Addition(node.index, "identity", state, shortcut, branch)
    return _classify_by_arms(graph, node)


def _is_step(graph: Graph, state: int, branch: int) -> bool:
    """Whether `branch` was computed from `state` by more than a change of layout."""
    if state == branch or not graph.computed_from(branch, state):
        return False
    on_path = graph.between(state, branch)
    return any(_computes(node) for node in on_path) and not _is_query(graph, state, on_path)


def _computes(node: Node) -> bool:
    computing = ("convolution", "linear", "norm", "activation", "matmul", "pool")
    return node.kind in computing or node.operation == "opaque"


def _is_query(graph: Graph, state: int, on_path: list[Node]) -> bool:
    """Whether the branch is attention whose query is `state` itself, straight into the products
    with the keys (pooled attention of MViT): the query is no state of the network."""
    inside = {node.index for node in on_path}
    first: list[Node] = []
    waiting = [state]
    while waiting:
        for user in graph.users[waiting.pop()]:
            if user not in inside:
                continue
            if _computes(graph.nodes[user]):
                first.append(graph.nodes[user])
            else:
                waiting.append(user)
    products = [n for n in first if n.kind == "matmul" or n.operation == _ATTENTION]
    return len(products) == len(first) and any(len(n.data_inputs) > 1 for n in products)


def _behind_layout(graph: Graph, index: int) -> int:
    """The tensor that `index` is a re-arranged or scaled form of."""
    node = graph.nodes[index]
    while node.kind in ("layout", "scale") and len(node.data_inputs) == 1:
        node = graph.nodes[node.data_inputs[0]]
    return node.index


@dataclass(frozen=True, order=True)
class _Arm:
    """How much one operand computes since the common state; ordered by weight."""

    weight: int
    length: int
    layers: int
    nonlinear: int
    norms: int
    pools: int


def _arm(nodes: list[Node]) -> _Arm:
    kinds = [node.kind for node in nodes]
    layers = kinds.count("convolution") + kinds.count("linear")
    nonlinear = kinds.count("activation") + kinds.count("matmul")
    return _Arm(
        layers + nonlinear, len(nodes), layers, nonlinear, kinds.count("norm"), kinds.count("pool")
    )


def _classify_by_arms(graph: Graph, node: Node) -> Addition:
    a, b = node.data_inputs
    state = graph.dominator(node.index)
    arm_a, arm_b = graph.between(state, a), graph.between(state, b)
    if _arm(arm_a) <= _arm(arm_b):
        shortcut, branch, nodes_s, nodes_b = a, b, arm_a, arm_b
    else:
        shortcut, branch, nodes_s, nodes_b = b, a, arm_b, arm_a
    light, heavy = _arm(nodes_s), _arm(nodes_b)
    disjoint = not {n.index for n in nodes_s} & {n.index for n in nodes_b}
    linear_shortcut = light.nonlinear == 0 and heavy.nonlinear > 0
    cheap_shortcut = (
        light.layers <= 1
        and light.nonlinear <= 1
        and heavy.layers >= light.layers + 2
        and heavy.nonlinear > light.nonlinear
    )
    kind: Kind = "merge"
    if state != -1 and disjoint and (linear_shortcut or cheap_shortcut):
        kind = "projection"
        if (
            _is_sibling_sum(graph, node, state, nodes_b, light)
            or _is_part_of_a_cell(graph, node)
            or not _is_made_here(node, nodes_s)
        ):
            kind = "merge"
    return Addition(node.index, kind, state, shortcut, branch)


def _is_sibling_sum(graph: Graph, node: Node, state: int, nodes_b: list[Node], light: _Arm) -> bool:
    """Sums of slices of one tensor (Res2Net, cascaded groups) and pool + separable convolution
    cells (NAS) look like projections but update no state."""
    if graph.nodes[state].operation in operations.SPLITS:
        return True
    if light.layers + light.norms > 0:
        return False
    if light.pools and graph.nodes[state].shape == node.shape:
        return True
    on_branch = {n.index for n in nodes_b}
    first = [graph.nodes[u] for u in graph.users[state] if u in on_branch]
    slicing = operations.SLICES | operations.SPLITS
    return bool(first) and all(n.operation in slicing for n in first)


def _is_part_of_a_cell(graph: Graph, node: Node) -> bool:
    """Whether the sum is concatenated with several other sums: the parts of a NAS cell."""
    for user in (graph.nodes[u] for u in graph.users[node.index]):
        if user.operation == "cat":
            sums = [i for i in user.data_inputs if graph.nodes[i].operation == "add"]
            if len(sums) > 2:
                return True
    return False


def _is_made_here(node: Node, shortcut: list[Node]) -> bool:
    """Whether the layers of the shortcut run inside the module that adds or beside it (a tree of
    DLA projects for its blocks). Where they do not, the operands are two streams of the network
    that meet (pixels and patches of TNT)."""
    around = node.owner.rpartition(".")[0]
    layers = [each.owner for each in shortcut if _computes(each)]
    return not around or all(owner.startswith(f"{around}.") for owner in layers)
