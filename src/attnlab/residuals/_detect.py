"""Tell the residual additions of a graph from all others.

An addition is a residual step when one operand (the branch) is an update of the state that the
other (the shortcut) is, in whatever form (`_forms.py`), or is a projection of. `_update.py` says
what makes it one; where neither operand was computed from the other, `_arms.py` tells a projection
from a merge.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Literal

from attnlab.residuals._arms import (
    Projection,
    is_part_of_a_cell,
    passes_lower_resolution,
    projection,
    weigh,
)
from attnlab.residuals._update import (
    begins_with_slices,
    caller,
    computes,
    computing_calls,
    forms,
    has_cut,
    home,
    is_deviation,
    is_only_compared,
    is_query,
    is_read_elsewhere,
    is_replacement,
    made_in,
    mixes_streams,
    parts,
    positions,
    twins,
)
from attnlab.residuals.graph import Graph, Node

Kind = Literal["identity", "projection", "mixed", "merge"]


@dataclass(frozen=True)
class Addition:
    """One addition of two same-shape feature maps, with its operands' roles."""

    node: int
    kind: Kind
    state: int
    """What the branch was computed from: x_t. Of a merge: -1."""
    shortcut: int
    branch: int


def additions(graph: Graph) -> list[Addition]:
    """Find all same-shape additions of data in `graph`, in the order of execution."""
    return _Detection(graph).additions


class _Detection:
    """What is asked once of a graph, and the additions that were told apart so far."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.computing = computing_calls(graph)
        self.twins = twins(graph)
        found = [node for node in graph.nodes if node.data and _adds_features(graph, node)]
        self.partial_sums = _partial_sums(graph, {node.index for node in found})
        self.steps: dict[int, Addition] = {}
        """The steps that were found, by the sum."""
        self.additions: list[Addition] = []
        for node in found:
            addition = self._step(node) or _merge(node)
            self.additions.append(addition)
            if addition.kind != "merge":
                self.steps[node.index] = addition
        self.additions = [self._coupled(each) or each for each in self.additions]
        inner = [each for each in self.additions if self._feeds_through(each)]
        self.additions = [
            _merge(graph.nodes[each.node]) if each in inner else each for each in self.additions
        ]

    def _step(self, node: Node) -> Addition | None:
        if self._adds_two_steps(node) or is_only_compared(self.graph, node.index):
            return None
        ways = (self._identity, self._projection, self._carried, self._late)
        return next((found for way in ways if (found := way(node)) is not None), None)

    def _adds_two_steps(self, node: Node) -> bool:
        """Whether the operands are two steps of one state, or of it and its norm, side by side:
        both `x + f(x)` and `n(x) + g(n(x))` carry x on, so their sum or mean (Gemma 3n's, of
        attention and LAuReL) is a merge of two trajectories."""
        graph = self.graph
        found = [self.steps.get(graph.before_layout(index)) for index in node.data_inputs]
        if len(found) != 2 or None in found:
            return False
        one, other = sorted((each for each in found if each), key=lambda each: each.state)
        return one.state == other.state or (
            graph.computed_from(other.state, one.state)
            and weigh(graph.between(one.state, other.state)).weight == 0
        )

    def _identity(self, node: Node) -> Addition | None:
        for shortcut, branch in _roles(self.graph, node):
            if is_read_elsewhere(self.graph, branch, node.index):
                continue
            for term in _terms(self.graph, shortcut, self.partial_sums):
                state = self._updated(node, term, branch)
                if state is not None:
                    return Addition(node.index, "identity", state, shortcut, branch)
            states = [self._updated(node, p, branch) for p in parts(self.graph, shortcut)]
            found = [state for state in states if state is not None]
            if found and len(found) == len(states):
                largest = max(found, key=lambda state: positions(self.graph.nodes[state]))
                return Addition(node.index, "identity", largest, shortcut, branch)
        return None

    def _updated(self, node: Node, tensor: int, branch: int) -> int | None:
        """The form of `tensor` that `branch` is an update of."""
        candidates = forms(self.graph, self.twins, tensor)
        return next((form for form in candidates if self._is_update(node, form, branch)), None)

    def _is_update(self, node: Node, state: int, branch: int) -> bool:
        graph = self.graph
        if state == branch or not graph.computed_from_constant(branch, state):
            return False
        path = made_in(caller(home(node, self.computing)), graph, state, branch)
        is_part = prod(graph.nodes[state].shape) != prod(node.shape)
        return (
            any(computes(each) for each in path)
            and not graph.has_more_noise(branch, state)
            and not has_cut(state, path, _is_a_number)
            and not (is_part and begins_with_slices(state, path))
            and not is_query(graph, state, path)
            and not is_replacement(graph, state, branch)
            and not mixes_streams(graph, state, branch)
            and not self._has_other_states(node, state, path)
        )

    def _late(self, node: Node) -> Addition | None:
        """The step whose branch was made from an earlier state of the same block, and is added
        after other steps: LongCat's experts read the state in front of an MLP and an attention."""
        for shortcut, branch in _roles(self.graph, node):
            if is_read_elsewhere(self.graph, branch, node.index):
                continue
            for term in _terms(self.graph, shortcut, self.partial_sums):
                for state in self._earlier(node, term):
                    if self._is_update(node, state, branch):
                        return Addition(node.index, "identity", state, shortcut, branch)
        return None

    def _earlier(self, node: Node, index: int) -> Iterator[int]:
        """The states that steps of the same call of a module as `node` carried on to `index`."""
        while (step := self.steps.get(index)) is not None:
            if step.kind != "identity" or self.graph.nodes[index].inside != node.inside:
                return
            index = step.state
            yield index

    def _projection(self, node: Node) -> Addition | None:
        if len(node.data_inputs) != 2:
            return None
        calls = home(node, self.computing)
        found = projection(self.graph, node, calls)
        if found is None and len(around := caller(calls)) < len(calls) - 1:
            found = projection(self.graph, node, around)  # both arms were made in the block
        if found is None or not found.is_cheap or self._is_merge(node, found):
            return None
        if node.first_goes_on and found.shortcut != node.inputs[0]:
            return None
        return Addition(node.index, "projection", found.state, found.shortcut, found.branch)

    def _carried(self, node: Node) -> Addition | None:
        """The step of a state of several streams that a matrix mixes, one for each token and made
        from the state itself: `A(X) X + f(X)`, as hyper-connections take it. Attention mixes its
        values so, too, but by a matrix of queries and keys, and the values are not a state."""
        graph = self.graph
        if len(node.data_inputs) != 2:
            return None
        for shortcut, branch in _roles(graph, node):
            mixed = graph.nodes[graph.before_layout(shortcut)]
            if mixed.operation != "matmul" or len(mixed.data_inputs) != 2:
                continue
            matrix, streams = mixed.data_inputs
            sizes = graph.nodes[matrix].shape
            if len(sizes) != len(node.shape) or len(sizes) < 4:
                continue
            if not sizes[-1] == sizes[-2] == node.shape[-2]:
                continue
            for state in (streams, graph.before_layout(streams)):
                if (
                    graph.nodes[state].shape == node.shape
                    and graph.computed_from(matrix, state)
                    and not is_read_elsewhere(graph, branch, node.index)
                    and self._is_update(node, state, branch)
                ):
                    return Addition(node.index, "mixed", state, shortcut, branch)
        return None

    def _is_merge(self, node: Node, found: Projection) -> bool:
        graph = self.graph
        return (
            is_read_elsewhere(graph, found.branch, node.index)
            or is_deviation(graph, found.branch)
            or is_deviation(graph, found.shortcut)
            or graph.has_more_noise(found.branch, found.state)
            or graph.has_more_noise(found.shortcut, found.state)
            or is_query(graph, found.state, found.branch_nodes)
            or (found.is_free and begins_with_slices(found.state, found.branch_nodes))
            or is_part_of_a_cell(graph, node)
            or passes_lower_resolution(graph, node, found)
            or self._has_other_states(node, found.state, found.branch_nodes)
        )

    def _coupled(self, addition: Addition) -> Addition | None:
        """The step that a merge is if its sum updates what its branch was made from: the first of
        `x1 + f(x2)`, `x2 + g(x1)`, as reversible networks take them."""
        if addition.kind != "merge":
            return None
        graph, node = self.graph, self.graph.nodes[addition.node]
        if len(node.data_inputs) != 2:
            return None
        for shortcut, branch in _roles(graph, node):
            if is_read_elsewhere(graph, branch, node.index):
                continue
            if _goes_on(graph, shortcut, branch, node.index) and any(
                self._couples(node, shortcut, branch, other) for other in self.additions
            ):
                return Addition(node.index, "identity", shortcut, shortcut, branch)
        return None

    def _couples(self, node: Node, shortcut: int, branch: int, other: Addition) -> bool:
        """Whether `other` updates the second half of the state by what `node` made of the first."""
        graph, half = self.graph, other.shortcut
        calls = home(node, self.computing)
        return (
            other.kind == "identity"
            and half != shortcut
            and graph.nodes[half].shape == node.shape
            and home(graph.nodes[other.node], self.computing) == calls
            and graph.computed_from(other.branch, node.index)
            and _is_read_beyond(graph, node.index, other.branch)
            and not graph.has_more_noise(branch, half)
            # Two experts of one state that are summed are not its two halves.
            and not made_in(caller(calls), graph, half, shortcut)
            and any(computes(each) for each in made_in(caller(calls), graph, half, branch))
        )

    def _feeds_through(self, addition: Addition) -> bool:
        """Whether the sum is the output of a state-space model, `scan(x) + D x` with a learned D,
        inside the branch of a step: a part of that branch, and not a state of the network."""
        graph = self.graph
        scaled = graph.nodes[addition.shortcut]
        if addition.kind != "identity" or scaled.operation != "mul" or len(scaled.data_inputs) != 1:
            return False
        return len(scaled.inputs) == 2 and any(
            other.kind == "identity"
            and graph.computed_from(other.branch, addition.node)
            and graph.computed_from(addition.state, other.state)
            and not graph.computed_from(other.shortcut, addition.node)
            for other in self.additions
        )

    def _has_other_states(self, node: Node, state: int, path: list[Node]) -> bool:
        """Whether the branch comes from another state that takes steps: one of another resolution,
        or one that was not made from `state`."""
        own = positions(node)
        made = {state} | {each.index for each in path}

        def another(each: Node) -> bool:
            inner = self.steps.get(each.index)
            return inner is not None and (inner.state not in made or positions(each) != own)

        return has_cut(state, path, another)


def _is_a_number(node: Node) -> bool:
    """What is made of a state by its nearest code alone, `x - codes[argmin(x)]`, updates nothing:
    no gradient passes the number of the code."""
    return not node.floating


def _is_read_beyond(graph: Graph, index: int, branch: int) -> bool:
    """Whether more than `branch` is made from a tensor: a half of a state goes on, the query of an
    attention, content plus position, does not."""
    return index in graph.outputs or any(
        reader != branch and not graph.computed_from(branch, reader)
        for reader in graph.readers(index)
    )


def _merge(node: Node) -> Addition:
    shortcut, branch = node.inputs
    return Addition(node.index, "merge", -1, shortcut, branch)


def _adds_features(graph: Graph, node: Node) -> bool:
    if not node.adds_same_shapes or not node.floating or len(node.shape) < 2:
        return False
    if len(node.inputs) != 2 or node.inputs[0] == node.inputs[1]:
        return False
    return len(node.data_inputs) == 2 or _constant_shortcut(graph, node) is not None


def _roles(graph: Graph, node: Node) -> list[tuple[int, int]]:
    """The pairs of shortcut and branch that the operands can be."""
    constant = _constant_shortcut(graph, node)
    if constant is not None:
        return [(constant, node.data_inputs[0])]
    a, b = node.data_inputs
    if node.first_goes_on:
        return [(a, b)] if _goes_on(graph, a, b, node.index) else []
    return [(a, b), (b, a)]


def _goes_on(graph: Graph, state: int, branch: int, by: int) -> bool:
    """Whether all that reads the state beside the sum is the branch. Where others read it, what is
    left when something is taken from it (MogaNet's `x - f(x)`, which is added to x) is not a
    state."""
    return all(
        reader in (by, branch) or graph.computed_from(branch, reader)
        for reader in graph.readers(state)
    )


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
