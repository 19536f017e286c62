"""The gates that a network computes by a sigmoid and multiplies by in its steps: gated attention.

Held at a constant, such a gate goes into the layer that reads the product, as an inserted one
would. The network still multiplies, so its logits are made zero, where a sigmoid returns 1/2, and
that layer takes the constant divided by what is left. The rows that computed the logits are zero
then: of the query projection of Qwen3-Next one half.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from attnlab.residuals import GateSource, Multiplier, Site, Step, Watchable
from attnlab.residuals.form import squashed
from attnlab.residuals.graph import Graph, Node

_ROLES = {
    "carry": "it mixes or scales the state that is carried on, which is not a layer's output",
    "read": "it mixes streams into what the branch reads, before any of its layers",
    "write": "it hands the branch out to several streams, each with a gate of its own",
}
"""Why gates elsewhere than on the branch itself stay."""


@dataclass(frozen=True)
class ComputedGate:
    """A product of the network's own with a gate that it computes from its state."""

    name: str
    multiplier: Multiplier
    at_zero: float
    """The gate where its logits are zero."""

    def ids(self, shape: tuple[int, ...]) -> Tensor:
        """The number of the gate that multiplies each element of a product of this shape."""
        axes = self.multiplier.channel_axes
        sizes = [n if axis in axes else 1 for axis, n in enumerate(self.multiplier.shape)]
        return torch.arange(self.multiplier.numbers).reshape(sizes).expand(shape)

    def product(self, graph: Graph) -> Node | None:
        """Where this recorded run multiplies by it."""
        key = self.multiplier.key
        assert key is not None
        asked = (key.owner, key.call, key.operation)
        for node in graph.nodes:
            if (node.owner, node.call, node.operation) == asked and not node.written_out:
                return graph.direct_calls(node)[key.number]
        return None

    def operand(self, product: Node) -> int:
        """The gate, as it multiplies."""
        assert self.multiplier.key is not None
        return product.inputs[self.multiplier.key.operand]

    def source(self, product: Node) -> int:
        """Return what it multiplies."""
        assert self.multiplier.key is not None
        return product.inputs[1 - self.multiplier.key.operand]


def own_gates(found: Watchable) -> Iterator[tuple[ComputedGate, Site]]:
    """Every gate that the network computes and multiplies by in a step, with its site; one that no
    constant can stand for says why there."""
    for gate in found.gates:
        if gate.kind != "product" or gate.multipliers[0].origin != "state":
            continue
        multiplier = gate.multipliers[0]
        node = found.run.graph.nodes[multiplier.node]
        assert multiplier.key is not None
        operand = multiplier.key.operand
        made = squashed(found.run.graph, node.inputs[operand])
        refusal = _ROLES.get(multiplier.role, "")
        if len(gate.calls) > 1:
            refusal = f"it runs {len(gate.calls)} times in one forward"
        elif not refusal and (made is None or not made.at_zero):
            refusal = "its logits cannot be made zero so that a constant is left"
        elif not refusal and found.run.graph.nodes[node.inputs[1 - operand]].shape != node.shape:
            refusal = "it stretches what it multiplies"
        step, _ = gate.calls[0]
        assert step is not None
        own = ComputedGate(gate.name, multiplier, 0.0 if made is None else made.at_zero)
        yield own, _site(gate, step, multiplier, refusal)


def _site(gate: GateSource, step: Step, multiplier: Multiplier, refusal: str) -> Site:
    return Site(
        name=step.name,
        stage=step.stage,
        block=step.block,
        part=step.part,
        kind=step.kind,
        host="output",
        module=gate.name,
        home="",
        attribute="",
        shape=(multiplier.numbers,),
        channel_axis=0,
        series=0,
        step=step,
        position=gate.calls[0][1],
        refusal=refusal,
    )
