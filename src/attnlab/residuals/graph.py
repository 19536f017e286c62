"""The data-flow graph of one forward run, and the questions that finding steps asks of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from attnlab.residuals import operations


@dataclass(frozen=True)
class Ref:
    """Stands for a tensor argument in a recorded call."""

    index: int


@dataclass
class Node:
    """One tensor of the run and the call that made it."""

    index: int
    operation: str
    """Canonical name: `add` for `+`, `+=`, `torch.add` and `Tensor.add_` alike."""
    shape: tuple[int, ...] = ()
    inputs: tuple[int, ...] = ()
    function: Any = None
    arguments: tuple[Any, ...] = ()
    keywords: dict[str, Any] = field(default_factory=dict)
    name: str = ""
    """Of a parameter or buffer: its state-dict name."""
    owner: str = ""
    """The module whose forward made the call, and which of its calls, counted from 0."""
    call: int = 0
    inside: tuple[tuple[str, int], ...] = ()
    """All module calls (name, call) it was made in, outermost first."""
    adds_same_shapes: bool = False
    """Whether the call is an addition of two tensors of one shape."""
    first_goes_on: bool = False
    """Of an addition: whether only the first operand can be the state, because the call gave the
    second a sign or a factor (`x - f`, `addcmul`)."""
    in_place: bool = False
    source: str = ""
    """Of an addition: file and line, and that line's text."""
    statement: str = ""
    produced_by: list[tuple[str, int]] = field(default_factory=list)
    """Modules (name, call) that returned exactly this tensor, innermost first."""
    floating: bool = True
    """Whether the tensor holds real or complex numbers; token numbers and masks do not."""
    random: bool = False
    """Whether the call drew random numbers."""
    data: bool = False
    """Whether the tensor depends on the network's input."""
    data_inputs: tuple[int, ...] = ()
    channel_axis: int | None = None

    @property
    def kind(self) -> operations.OperationKind:
        return operations.kind_of(self.operation)

    @property
    def channels_on(self) -> int:
        """The channel axis; where it cannot be told, 1 of four axes and else the last."""
        if self.channel_axis is not None:
            return self.channel_axis
        return 1 if len(self.shape) == 4 else len(self.shape) - 1


def reads(node: Node) -> tuple[int, ...]:
    """The tensors whose values the call reads, not their shape or type alone."""
    if node.operation in operations.SHAPE_ONLY:
        return ()
    if node.operation in operations.READS_FIRST_ONLY:
        return node.inputs[:1]
    if node.random and node.in_place and node.kind != "layout":
        return node.inputs[1:]  # `normal_` writes over what was there; dropout does not
    return node.inputs


class Graph:
    """Nodes in the order of execution, with ancestors, users and dominators of the data nodes."""

    def __init__(
        self,
        nodes: list[Node],
        calls: dict[str, int],
        outputs: Sequence[int] = (),
        given: Mapping[tuple[str, int], int] | None = None,
    ) -> None:
        self.nodes = nodes
        self.calls = calls
        """How often each module was called."""
        self.outputs = outputs
        """The tensors that the network returned, as far as they could be seen."""
        self.given = given or {}
        """The first tensor that a module (name, call) was given, where that had no name."""
        self.users: dict[int, list[int]] = defaultdict(list)
        self._data_ancestors: list[int] = [0] * len(nodes)
        self._ancestors: list[int] = [0] * len(nodes)
        self._noise: list[int] = [0] * len(nodes)
        self._dominator: dict[int, int] = {}
        self._depth: dict[int, int] = {-1: 0}
        for node in nodes:
            self._link(node)
        self._live = 0
        for output in outputs:
            self._live |= self._ancestors[output] | (1 << output)

    def _link(self, node: Node) -> None:
        nodes = self.nodes
        # `anchors.type_as(features)` takes no values from the features, and is none of their data.
        node.data_inputs = tuple(i for i in reads(node) if nodes[i].data)
        node.data = node.operation == "input" or bool(node.data_inputs)
        # Ancestors as bit sets: a graph of thousands of nodes is closed in milliseconds.
        for i in node.inputs:
            self._ancestors[node.index] |= self._ancestors[i] | (1 << i)
        for i in node.data_inputs:
            self._data_ancestors[node.index] |= self._data_ancestors[i] | (1 << i)
        self._noise[node.index] = self._noise_in(node)
        for i in set(node.data_inputs):
            self.users[i].append(node.index)
        if node.data:
            dominator = -1
            if node.operation != "input":
                dominator = node.data_inputs[0]
                for i in node.data_inputs[1:]:
                    dominator = self.common_dominator(dominator, i)
            self._dominator[node.index] = dominator
            self._depth[node.index] = self._depth[dominator] + 1

    def _noise_in(self, node: Node) -> int:
        # Noise that only chooses (the indices of a random order, the buckets of hashed attention)
        # is not in the values. Dropout, where a network keeps it on, hands its input on.
        if not node.floating:
            return 0
        noise = 1 << node.index if node.random and node.kind != "layout" else 0
        for i in reads(node):
            noise |= self._noise[i]
        return noise

    def has_more_noise(self, index: int, than: int) -> bool:
        """Whether random numbers are in the values of `index` that are not in those of `than`: with
        the same `than`, it has other values in every run."""
        return bool(self._noise[index] & ~self._noise[than])

    def common_dominator(self, a: int, b: int) -> int:
        """The last node that every path to `a` and every path to `b` passes; -1 is the outside."""
        while a != b:
            if self._depth[a] < self._depth[b]:
                a, b = b, a
            a = self._dominator[a]
        return a

    def dominator(self, index: int) -> int:
        """The last node that every path from the input to `index` passes."""
        return self._dominator[index]

    def readers(self, index: int) -> list[int]:
        """Who reads the tensor `index`, but for what leads to no output: a hook that keeps
        statistics, a check for finite values."""
        return [user for user in self.users[index] if self.leads_out(user)]

    def leads_out(self, index: int) -> bool:
        """Whether the network returned the tensor `index` or something that was made from it."""
        return not self.outputs or bool((self._live >> index) & 1)

    def computed_from(self, index: int, ancestor: int) -> bool:
        """Whether `index` was computed from `ancestor` (data only)."""
        return bool((self._data_ancestors[index] >> ancestor) & 1)

    def computed_from_constant(self, index: int, ancestor: int) -> bool:
        """Whether `index` was computed from `ancestor`, which need not depend on the input."""
        return bool((self._ancestors[index] >> ancestor) & 1)

    def between(self, start: int, end: int) -> list[Node]:
        """The data nodes on the paths from `start` (excluded; -1: outside) to `end` (included)."""
        found: list[Node] = []
        seen: set[int] = set()
        stack = [end]
        while stack:
            index = stack.pop()
            if index == start or index in seen:
                continue
            if start != -1 and not self.computed_from(index, start):
                continue
            seen.add(index)
            found.append(self.nodes[index])
            stack.extend(self.nodes[index].data_inputs)
        return found
