"""A residual step, and what tells it from all others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from attnlab.residuals.graph import Graph, Node

Kind = Literal["identity", "projection", "merge"]


@dataclass(frozen=True)
class StepKey:
    """Which addition a step is: the same in every run of a network, with gates and without,
    whatever the number of inputs and their size."""

    owner: str
    """The module whose forward makes the addition."""
    call: int
    """In which call of that module in one forward, from 0."""
    axes: int
    channel_axis: int
    channels: int
    """How many axes what is added has, and how many channels on that one."""
    addition: int
    """The addition's place, from 0, among those of that call that `could_be` this one."""

    plain: bool = True
    """Whether it adds two tensors as they are, without a sign or a factor (`x - f`, `addcmul`)."""

    def could_be(self, shape: Sequence[int], plain: bool = True) -> bool:
        """Whether a same-shape addition of this shape and form could be the step's: same axes, same
        channels. Not the whole shape, which depends on the images, and not every addition: whether
        `scores + bias` adds tensors of one shape depends on the batch size."""
        return (
            len(shape) == self.axes
            and shape[self.channel_axis] == self.channels
            and plain == self.plain
        )

    def candidates(self, graph: Graph) -> list[Node]:
        """The additions of `graph` that could be this one, in the order of execution."""
        call = (self.owner, self.call)
        return [
            node
            for node in graph.nodes
            if node.adds_same_shapes
            and call in node.inside
            and self.could_be(node.shape, not node.first_goes_on)
        ]


@dataclass(frozen=True)
class Step:
    """One residual update `x_{t+1} = x_t + f(x_t)` of a network."""

    stage: int
    """From 1. A stage is a run of steps whose states have the same number of elements."""
    block: int
    """From 0, within the stage. Both updates of a transformer block have one block number."""
    part: int
    """From 0, within the block: 0 is a transformer block's attention, 1 its MLP."""
    kind: Kind
    """`identity`: the shortcut is x_t itself. `projection`: a convolution, pool, ... of it."""
    name: str
    """The block's module name, e.g. `layer1.0`."""
    key: StepKey
    owner_calls: int
    """How often the module that makes the addition is called in one forward."""
    owner_additions: int
    """How many additions of that call could be this one."""
    branch_operand: int
    """Which operand of the addition (0 or 1) is the branch."""
    overwrites: bool
    """Whether the addition is written as a call of `add_` or its like, whose caller may use the
    operand it wrote to instead of its result (`+=` binds the result; torch itself sees no
    difference)."""
    branch_modules: tuple[str, ...]
    """Modules called once whose output is exactly the branch, or is but for gates, innermost
    first."""
    branch_shared: bool
    """Whether something besides the addition reads the branch."""
    shape: tuple[int, ...]
    """The state's shape, batch included."""
    activation: str
    """What is applied to the sum before anything else sees it (`relu`), or an empty string."""
    source: str
    """File and line of the addition."""
    graph_node: int
    """The addition's node in the recorded graph, with its state, shortcut and branch nodes."""
    state_node: int
    shortcut_node: int
    branch_node: int

    @property
    def label(self) -> str:
        """`1.0`: stage and block, as on the reports' axes; `1.0:1` names a block's second part."""
        return f"{self.stage}.{self.block}" + (f":{self.part}" if self.part else "")

    @property
    def owner(self) -> str:
        """The module whose forward makes the addition."""
        return self.key.owner

    @property
    def channel_axis(self) -> int:
        return self.key.channel_axis

    @property
    def channels(self) -> int:
        return self.key.channels

    def __str__(self) -> str:
        return (
            f"{self.label:7} {self.kind:10} {self.name:24} "
            f"{'×'.join(map(str, self.shape[1:])):14} {self.source}"
        )
