"""Decide which modules go with which steps, and take them out."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from torch import nn

from attnlab._errors import ShortenError
from attnlab.gates import StageGate
from attnlab.residuals import Step, Watchable, watchable
from attnlab.residuals.example import Example, call, evaluating
from attnlab.residuals.graph import Graph
from attnlab.surgery.insertion import attachments, remove_attachments
from attnlab.surgery.shortening._block import empty_block
from attnlab.surgery.shortening._branch import branch_nodes, end_of, modules_within, parameters_left
from attnlab.surgery.shortening.stand_ins import outermost, take_out


@dataclass(frozen=True)
class Removal:
    """What taking steps out of a network comes to."""

    gates: tuple[str, ...]
    """Attachments that go with them."""
    replaced: dict[str, str]
    """A word for what takes the place of each module: `attnlab.surgery.shortening.stand_ins`."""

    def perform(self, network: nn.Module) -> None:
        """On `network` itself."""
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
    end = end_of(graph, graph.nodes[step.branch_node], step.owner)
    if end is None:
        return "its block does more than this step, and no module of it makes the branch"
    left = parameters_left(graph, nodes, [*modules_within(graph, nodes), end])
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
            replaced[block[0]] = block[1]
            continue
        nodes = branch_nodes(graph, step)
        reason = _stuck(graph, step, nodes)
        if reason:
            raise refused(step, reason)
        end = end_of(graph, graph.nodes[step.branch_node], step.owner)
        assert end is not None
        words = _passing(network, modules_within(graph, nodes), example)
        around = [name for name in words if end.startswith(f"{name}.")]
        for name in around or [end]:
            words[name] = words.get(name, "identity").replace("identity", "nothing")
        replaced |= words
    return outermost(replaced)


def _passing(network: nn.Module, modules: list[str], example: Example | None) -> dict[str, str]:
    """What hands on in the place of each of `modules`: with as many results."""
    words: dict[str, str] = {}

    def note(name: str) -> Any:
        def hook(_module: nn.Module, _arguments: Any, output: Any) -> None:
            several = isinstance(output, tuple) and len(output) > 1
            words[name] = f"identity:{len(output)}" if several else "identity"

        return hook

    with ExitStack() as hooks:
        for name in modules:
            module = network.get_submodule(name)
            hooks.enter_context(module.register_forward_hook(note(name)))
        with evaluating(network):
            call(network, example)
    return words
