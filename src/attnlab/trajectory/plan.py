"""What to watch in a network: its steps, their stages, and what follows each addition."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from attnlab._errors import StepsNotFoundError
from attnlab.insert import Step, StepKey, Watchable, watchable
from attnlab.insert.trunk import trunk
from attnlab.insert.where import lies_in
from attnlab.record.example import Example
from attnlab.record.graph import Graph, Ref
from attnlab.trajectory.norms import Activation
from attnlab.trajectory.stages import Stages, kept_steps


@dataclass(frozen=True)
class Plan:
    """The steps of a network in the order of execution, and what watching them needs besides."""

    found: Watchable
    activations: dict[StepKey, Activation | None]
    """What the network applies to the sum of each step, ready to be applied again."""

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.found.steps

    @property
    def gated(self) -> set[StepKey]:
        """The steps on whose branch attnlab inserted a gate, at its end or further inside."""
        ours = [gate for gate in self.found.gates if gate.kind == "inserted"]
        return {step.key for gate in ours for step, _ in gate.calls.values() if step is not None}

    @property
    def stages(self) -> Stages:
        """The stage of every step."""
        return torch.tensor([step.stage for step in self.steps])

    @property
    def kept(self) -> list[bool]:
        """Whether a step counts; the first of every stage does not."""
        return kept_steps(self.stages).tolist()

    def describe(self) -> str:
        """`4 stages of 3+4+6+3 steps`."""
        stages = self.stages.tolist()
        counts = "+".join(str(stages.count(stage)) for stage in dict.fromkeys(stages))
        return f"{len(set(stages))} stage{'s' * (len(set(stages)) > 1)} of {counts} steps"


def plan(model: nn.Module, example: Example | None = None) -> Plan:
    """Find the steps of `model` by one run on `example` (or on one made up)."""
    found = watchable(model, example)
    inside = trunk(model)  # the sums of a detector's pyramid are no steps of a trajectory
    found = replace(found, steps=tuple(s for s in found.steps if lies_in(s.owner, inside)))
    if not found.steps:
        raise StepsNotFoundError(
            f"{type(model).__name__} has no residual step x + f(x), so it has no trajectory of "
            f"states and no stiffness: NSI compares a state with the next one of the same shape. "
            f"(VGG has no shortcut; DenseNet concatenates instead of adding.) Seen in one run on "
            f"an input of shape {found.run.input_shape}."
        )
    graph = found.run.graph
    return Plan(found, {step.key: _activation(model, graph, step) for step in found.steps})


def _activation(model: nn.Module, graph: Graph, step: Step) -> Activation | None:
    if not step.activation:
        return None
    if step.activation == "relu":
        return torch.relu
    node = graph.nodes[graph.users[step.graph_node][0]]
    stored = dict(model.named_parameters()) | dict(model.named_buffers())

    def replay(total: Tensor) -> Tensor:
        def fill(leaf: Any) -> Any:
            if not isinstance(leaf, Ref):
                return leaf
            name = graph.nodes[leaf.index].name
            return total if leaf.index == step.graph_node else stored[name]

        arguments, keywords = tree_map(fill, (node.arguments, node.keywords))
        result: Tensor = node.function(*arguments, **keywords)
        return result

    return replay
