"""A place of a host network where a gate can act."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

from attnlab.residuals.graph import Graph, Node
from attnlab.residuals.steps import Step

Host = Literal["output", "addition", "input"]
Position = Literal["end", "inside", "elsewhere"]
Place = Literal["auto", "branch", "norm", "heads"]
"""Where on a step's branch a gate acts: at its end, after the norm that it ends in, or in front of
the output projection of its attention, where heads are apart. `auto`: a constant gate (`asr:`)
after the norm where an activation follows that, `head` and `element` at the heads where the
network has attention, any other at the end."""


@dataclass(frozen=True)
class Site:
    """A place where a gate can act."""

    name: str
    """The block's module name, or the module's where it was named by hand."""
    stage: int
    """The step's, or of a network without steps the number of a run of sites of one size. 0 where
    the network has steps and the site lies on none."""
    block: int
    part: int
    kind: str
    """`identity` or `projection` for a residual step, `output` for a module's output."""
    host: Host
    """`output`: after the module `module`. `addition`: at an addition in its forward. `input`: in
    front of it."""
    module: str
    home: str
    """The module on which the attachment is registered, and the attribute's name there."""
    attribute: str
    shape: tuple[int, ...]
    channel_axis: int
    series: int
    """A gate that hands a memory on is shared by the sites of one series."""
    step: Step | None = None
    """The step on whose branch the site lies, or None."""
    position: Position = "elsewhere"
    """`end`: a gate here is the step's size. `inside`: layers follow, so that a gate here is a part
    of f. `elsewhere`: on the branch of no step."""
    refusal: str = ""
    """Why no gate can act here, or an empty string."""
    heads: int = 0
    """In front of an output projection: how many heads the attention has."""
    reader: str = ""
    """There: the module that is given what the attention reads, ..."""
    reads: int = 0
    """... and how many channels that has."""

    @property
    def label(self) -> str:
        """The step's label, or the module's name if there is none."""
        if self.step is not None:
            return self.step.label
        return f"{self.stage}.{self.block}" if self.stage else self.name

    @property
    def at(self) -> str:
        """Where the gate acts, for messages."""
        words = {"output": "after", "input": "in front of", "addition": "at an addition of"}
        return f"{words[self.host]} {self.module or 'the network'!r}"

    @property
    def channels(self) -> int:
        return self.shape[self.channel_axis]


def position_of(
    graph: Graph, node: Node | None, steps: Sequence[Step]
) -> tuple[Step | None, Position]:
    """The step on whose branch the tensor `node` lies, and where there; of nested steps the
    innermost. A tensor that is not there lies elsewhere."""
    if node is None:
        return None, "elsewhere"
    on = [
        step for step in steps if _on_branch(graph, node.index, step)
    ]  # in the order of execution
    for step in on:
        if _ends(graph, node.index, step):
            return step, "end"
    return (on[0], "inside") if on else (None, "elsewhere")


def _on_branch(graph: Graph, node: int, step: Step) -> bool:
    leads_to = node == step.branch_node or graph.computed_from(step.branch_node, node)
    return leads_to and graph.computed_from_constant(node, step.state_node)


def _ends(graph: Graph, node: int, step: Step) -> bool:
    """Whether what follows up to the addition only re-arranges the values, or is another gate."""
    size = prod(graph.nodes[node].shape)
    return all(
        (each.kind == "layout" and prod(each.shape) == size) or each.operation == "whole"
        for each in graph.between(node, step.branch_node)
    )
