"""Decide which modules go with which steps, and take them out."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from attnlab._errors import ShortenError
from attnlab.gates import StageGate
from attnlab.residuals import Step, Watchable, operations, watchable
from attnlab.residuals.example import Example, call, evaluating
from attnlab.residuals.graph import Graph, Node, Ref
from attnlab.surgery.insertion import attachments, remove_attachments
from attnlab.surgery.shortening.stand_ins import first_tensor, outermost, take_out

_ZERO_IN_ZERO_OUT = frozenset(("sub", "getitem", "cat", "stack", "neg", "sum"))
"""Operations that are neither layout nor scale nor addition and are zero where all data are."""


def branch_nodes(graph: Graph, step: Step) -> set[int]:
    """The nodes that only the branch of `step` needs; none where something else reads it."""
    if graph.readers(step.branch_node) != [step.graph_node]:
        return set()
    found = {step.branch_node}
    # Nodes stand in the order of execution, so a node's readers are decided before it.
    for index in range(step.branch_node - 1, -1, -1):
        readers = graph.readers(index)
        if readers and found.issuperset(readers):
            found.add(index)
    return found


def modules_within(graph: Graph, nodes: set[int]) -> list[str]:
    """The outermost modules all of whose work is among `nodes`."""
    inside: dict[str, bool] = defaultdict(lambda: True)
    for node in graph.nodes:
        if node.data and graph.leads_out(node.index):  # not the scores that nobody reads
            for name, _ in node.inside:
                inside[name] &= node.index in nodes
    whole = [name for name, within in inside.items() if within and name]
    return [name for name in whole if not any(name.startswith(f"{other}.") for other in whole)]


def ends_of(graph: Graph, branch: Node, owner: str) -> list[str] | None:
    """Modules, each called once, that the module `owner` runs and that make the branch zero when
    each of them returns zeros: the outermost whose output is the branch, or of a sum all whose
    outputs are added, of a product one of its factors. None if there are none."""
    names = [
        name
        for name, _ in branch.produced_by
        if graph.calls[name] == 1 and name != owner and not f"{owner}.".startswith(f"{name}.")
    ]
    if names:
        return names[-1:]
    if branch.operation not in _ZERO_IN_ZERO_OUT and branch.kind not in ("layout", "scale", "add"):
        return None
    found = [ends_of(graph, graph.nodes[index], owner) for index in branch.data_inputs]
    if branch.operation == "mul":
        return next((ends for ends in found if ends), None)
    if branch.operation == "div":
        found = found[:1] if branch.data_inputs[:1] == branch.inputs[:1] else [None]
    elif branch.operation in ("add", "sub"):
        numbers = not all(isinstance(each, Ref) for each in branch.arguments)
        if numbers or len(branch.data_inputs) != len(branch.inputs):
            return None  # a number or a bias is added
    if not found or any(ends is None for ends in found):
        return None
    return list(dict.fromkeys(name for ends in found for name in ends or ()))


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
        for node in graph.sums
        if len(node.data_inputs) == 1
        and any(graph.nodes[i].operation == "zeros_like" for i in node.inputs)
    }


def _is_block(name: str, block: str) -> bool:
    return bool(block) and (name == block or name.startswith(f"{block}."))


def _word(graph: Graph, name: str, shortcuts: Mapping[int, int]) -> str | None:
    inside = {node.index for node in graph.nodes if (name, 0) in node.inside and node.data}
    output = _only_output(graph, name, inside)
    if output is None or output.index not in inside or _leaks(graph, inside, output):
        return None
    last = _followed(graph, inside, output.index, shortcuts)
    if last not in inside:
        return "identity" if _is_first(graph, name, last) else None
    node = graph.nodes[last]
    if node.operation != "relu" or len(node.data_inputs) != 1:
        return None
    given = _followed(graph, inside, node.data_inputs[0], shortcuts)
    if given in inside or not _is_first(graph, name, given):
        return None
    # relu(relu(x)) is relu(x), to the last bit.
    return "identity" if _not_negative(graph, given) else "relu"


def _only_output(graph: Graph, name: str, inside: set[int]) -> Node | None:
    """The tensor that a module returned; of several, the one that anything outside reads (the state
    of HY-V4's layers, which hand on what their attention chose as well)."""
    returned = next((n for n in graph.nodes if (name, 0) in n.produced_by), None)
    if returned is not None:
        return returned
    outputs = set(graph.outputs)
    read = [i for i in inside if i in outputs or not inside.issuperset(graph.readers(i))]
    return graph.nodes[read[0]] if len(read) == 1 else None


def _is_first(graph: Graph, name: str, given: int) -> bool:
    """Whether a module hands on the first tensor that it is given, as its stand-in will, and not
    the state beside it (`output(hidden_states, residual)`)."""
    return graph.given.get((name, 0), given) == given


def _leaks(graph: Graph, inside: set[int], output: Node) -> bool:
    """Whether something outside reads more of the module than its output."""
    return any(
        not inside.issuperset(graph.readers(index)) for index in inside if index != output.index
    )


def _followed(graph: Graph, inside: set[int], index: int, shortcuts: Mapping[int, int]) -> int:
    """What an addition `inside` a module is when its branch is left out, but for casts: a state
    that is added in float32 comes out as it was. What the module was given is not looked into."""
    while index in inside:
        node = graph.nodes[index]
        if index in shortcuts:
            index = shortcuts[index]
        elif node.operation in operations.CASTS and len(node.data_inputs) == 1:
            index = node.data_inputs[0]
        else:
            break
    return index


def _not_negative(graph: Graph, index: int) -> bool:
    node = graph.nodes[index]
    while node.operation.startswith("max_pool") and len(node.data_inputs) == 1:
        node = graph.nodes[node.data_inputs[0]]
    return node.operation == "relu"


@dataclass(frozen=True)
class Removal:
    """What taking steps out of a network comes to."""

    gates: tuple[str, ...]
    """Attachments that go with them."""
    replaced: dict[str, str]
    """A word for what takes the place of each module: `attnlab.surgery.shortening.stand_ins`."""

    def perform(self, network: nn.Module) -> None:
        """Take the steps out of `network` itself."""
        if self.gates:
            kept = {name for name, _ in attachments(network)} - set(self.gates)
            remove_attachments(network, keep=kept)
        take_out(network, self.replaced)


def why_not(network: nn.Module, found: Watchable, step: Step) -> str:
    """Why `step` cannot be removed, or an empty string."""
    if step.kind == "projection":
        return (
            "its shortcut projects: it changes the shape or the channels of the state, which the "
            "network needs"
        )
    if step.kind == "mixed":
        return "a matrix mixes the streams of its state, which the network needs"
    nodes = branch_nodes(found.run.graph, step)
    if not nodes:
        return "something besides its addition reads its branch"
    acting = set(_gates_in(found, nodes))
    shared = [
        name
        for name, gate in attachments(network)
        if name in acting and isinstance(gate.gate_module, StageGate)
    ]
    if shared:
        return (
            f"its gate {shared[0]!r} hands a memory on to the next block, whose gate would change"
        )
    graph = found.run.graph
    return "" if empty_block(graph, step, [step]) else _stuck(graph, step, nodes)


def _stuck(graph: Graph, step: Step, nodes: set[int]) -> str:
    """Why the modules of the branch cannot go while its block stays, or an empty string."""
    ends = ends_of(graph, graph.nodes[step.branch_node], step.owner)
    if ends is None:
        return "its block does more than this step, and no module of it makes the branch"
    left = parameters_left(graph, nodes, [*modules_within(graph, nodes), *ends])
    return f"its branch uses {left[0]!r}, of a module that stays" if left else ""


def decide_removal(network: nn.Module, chosen: Sequence[Step], example: Example | None) -> Removal:
    """How to take the `chosen` steps of `network` out; it is left as it is.

    Raises `ShortenError`, which names the step, where that cannot be done."""
    found = watchable(network, example)
    for step in chosen:
        reason = why_not(network, found, step)
        if reason:
            raise refused(step, reason)
    nodes = [branch_nodes(found.run.graph, step) for step in chosen]
    gates = tuple(dict.fromkeys(name for each in nodes for name in _gates_in(found, each)))
    if gates:
        network = copy.deepcopy(network)
        Removal(gates, {}).perform(network)
        found = watchable(network, example)
    keys = {step.key for step in chosen}
    steps = [step for step in found.steps if step.key in keys]
    assert len(steps) == len(chosen), "a step is the same with gates and without"
    return Removal(gates, _replaced(network, found, steps, example))


def refused(step: Step, reason: str) -> ShortenError:
    """The error for a step that cannot be removed."""
    return ShortenError(f"Step {named(step)} cannot be removed: {reason}.")


def named(step: Step) -> str:
    """`1.2 (layer1.2)`; the label alone in a network without blocks."""
    return f"{step.label} ({step.name})" if step.name else step.label


def _gates_in(found: Watchable, nodes: set[int]) -> list[str]:
    makers = {found.run.graph.nodes[index].owner for index in nodes}
    return [gate.name for gate in found.gates if gate.kind == "inserted" and gate.name in makers]


def _replaced(
    network: nn.Module, found: Watchable, chosen: Sequence[Step], example: Example | None
) -> dict[str, str]:
    graph = found.run.graph
    replaced: dict[str, str] = {}
    for step in chosen:
        block = empty_block(graph, step, chosen)
        if block is not None:
            name, word = block
            if not any((name, 0) in node.produced_by for node in graph.nodes):
                word = _passing(network, [name], example)[name]
            replaced[name] = word
            continue
        nodes = branch_nodes(graph, step)
        reason = _stuck(graph, step, nodes)
        if reason:
            raise refused(step, reason)
        ends = ends_of(graph, graph.nodes[step.branch_node], step.owner)
        assert ends is not None
        words = _passing(network, modules_within(graph, nodes), example)
        for end in ends:
            around = [name for name in words if end.startswith(f"{name}.")]
            for name in around or [end]:
                words[name] = words.get(name, "identity").replace("identity", "nothing")
        # A stand-in answers with one tensor, so a module of which the branch reads two stays.
        replaced |= {
            name: word
            for name, word in words.items()
            if word.startswith("nothing") or _handed_out(graph, name) < 2
        }
    return outermost(replaced)


def _passing(network: nn.Module, modules: list[str], example: Example | None) -> dict[str, str]:
    """What hands on in the place of each of `modules`: with as many results."""
    words: dict[str, str] = {}

    def note(name: str) -> Any:
        def hook(_module: nn.Module, given: Any, named: Any, output: Any) -> None:
            words[name] = _word_for(given, named, output)

        return hook

    with ExitStack() as hooks:
        for name in modules:
            module = network.get_submodule(name)
            hooks.enter_context(module.register_forward_hook(note(name), with_kwargs=True))
        with evaluating(network):
            call(network, example)
    return words


def _handed_out(graph: Graph, name: str) -> int:
    """How many tensors that a module made are read outside it."""
    inside = {node.index for node in graph.nodes if any(name == each for each, _ in node.inside)}
    return sum(not inside.issuperset(graph.readers(index)) for index in inside)


def _word_for(given: tuple[object, ...], named: dict[str, object], output: object) -> str:
    """What answers in the form in which a module of a branch did."""
    if isinstance(output, list):
        return "identity:list"
    if isinstance(output, tuple):
        return f"identity:{len(output)}"
    if isinstance(output, Tensor):
        first = first_tensor(given, named)
        same = first.ndim == output.ndim and first.shape[:-1] == output.shape[:-1]
        if same and first.shape != output.shape:
            return f"zeros:{output.shape[-1]}"
    return "identity"
