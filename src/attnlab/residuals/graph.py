"""The data-flow graph of one forward run, and the questions that finding steps asks of it.

Which axis of a feature map is the channel axis follows from what made it: convolutions and
batch-like norms put the channels on axis 1, linear layers and layer norms on the last; layout
operations carry the axis along; an addition keeps its shortcut's. So a mixer's token MLP, whose
linear layer scales tokens, is still gated per feature.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from operator import index
from typing import SupportsIndex, cast

from torch.utils._pytree import tree_map_only

from attnlab._types import Arguments, Function, Keywords
from attnlab.residuals import operations

_OF_NORMS = frozenset(("rsqrt", "pow", "square", "sqrt", "var", "var_mean")) | frozenset(
    ("batch_norm", "layer_norm", "rms_norm", "group_norm")
)
_LAST_AXIS_NORMS = frozenset(("layer_norm", "rms_norm", "fast_layer_norm", "fast_rms_norm"))


@dataclass(frozen=True)
class Ref:
    """Stands for a tensor argument in a recorded call."""

    index: int


@dataclass(slots=True)
class Node:
    """One tensor of the run and the call that made it."""

    index: int
    operation: str
    """Canonical name: `add` for `+`, `+=`, `torch.add` and `Tensor.add_` alike."""
    shape: tuple[int, ...] = ()
    inputs: tuple[int, ...] = ()
    function: Function | None = None
    arguments: Arguments = ()
    keywords: Keywords = field(default_factory=dict)
    place: int | None = None
    """Of one of several tensors that a call returned: which of them. The call is its input."""
    name: str = ""
    """The state-dict name of a parameter or buffer."""
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
    written_out: bool = False
    """Whether the call was not made: it stands for a part of an addition with a sign or factor."""
    data: bool = False
    """Whether the tensor depends on the network's input."""
    data_inputs: tuple[int, ...] = ()
    channel_axis: int | None = None

    def replayed(self, fill: Callable[[Ref], object]) -> object:
        """Make the call once more, with what `fill` gives in the place of each tensor."""
        assert self.function is not None, "an input or a parameter was made by no call"
        call = (self.arguments, self.keywords)
        arguments, keywords = tree_map_only(Ref, fill, call)
        return self.function(*arguments, **keywords)

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
    """Nodes in the order of execution, with ancestors, users, dominators and channel axes of the
    data nodes."""

    def __init__(
        self,
        nodes: list[Node],
        calls: dict[str, int],
        outputs: Sequence[int] = (),
        given: Mapping[tuple[str, int], int] | None = None,
        counted_in_wholes: int = 0,
    ) -> None:
        self.nodes = nodes
        self.calls = calls
        """How often each module was called."""
        self.outputs = outputs
        """The tensors that the network returned, as far as they could be seen."""
        self.given = given or {}
        """The first tensor that a module (name, call) was given, where that had no name."""
        self.counted_in_wholes = counted_in_wholes
        """By how much what the recording counted rose in modules that are one node."""
        self.sums = [node for node in nodes if node.adds_same_shapes]
        """The additions of two tensors of one shape."""
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
        if node.operation == "parameter":  # every second node; it depends on none
            return
        # `anchors.type_as(features)` takes no values from the features, and is none of their data.
        node.data_inputs = tuple(i for i in reads(node) if nodes[i].data)
        node.data = node.operation == "input" or bool(node.data_inputs)
        if node.data:
            node.channel_axis = self._channel_axis(node)
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
        """Return whether random numbers are in the values of `index` that are not in those of
        `than`: with the same `than`, it has other values in every run."""
        return bool(self._noise[index] & ~self._noise[than])

    def before_layout(self, index: int) -> int:
        """The tensor that `index` is a re-arranged form of; itself if it is not one."""
        node = self.nodes[index]
        while node.kind == "layout" and len(node.data_inputs) == 1:
            node = self.nodes[node.data_inputs[0]]
        return node.index

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
        """Return whether the network returned the tensor `index` or something that was made from
        it."""
        return not self.outputs or bool((self._live >> index) & 1)

    def computed_from(self, index: int, ancestor: int) -> bool:
        """Return whether `index` was computed from `ancestor` (data only)."""
        return bool((self._data_ancestors[index] >> ancestor) & 1)

    def computed_from_constant(self, index: int, ancestor: int) -> bool:
        """Return whether `index` was computed from `ancestor`, which need not depend on the
        input."""
        return bool((self._ancestors[index] >> ancestor) & 1)

    @cached_property
    def norm_calls(self) -> frozenset[tuple[str, int]]:
        """The module calls that compute what a norm computes: a parameter that multiplies there is
        a norm's weight."""
        return frozenset(
            (node.owner, node.call) for node in self.nodes if node.operation in _OF_NORMS
        )

    @cached_property
    def _direct_calls(self) -> dict[tuple[str, int, str], list[Node]]:
        found: dict[tuple[str, int, str], list[Node]] = defaultdict(list)
        for node in self.nodes:
            if not node.written_out and node.place is None:
                found[node.owner, node.call, node.operation].append(node)
        return found

    def direct_calls(self, node: Node) -> list[Node]:
        """All calls of the operation of `node` that the same call of its module makes itself, not
        the modules in it."""
        return self._direct_calls[node.owner, node.call, node.operation]

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

    def _channel_axis(self, node: Node) -> int | None:
        """The channel axis of `node`, from those of its inputs; None if it cannot be told."""
        rank = len(node.shape)
        if rank < 2:
            return None
        if node.operation == "input":
            return 1 if rank == 4 else None
        if node.kind == "convolution":
            digits = [int(c) for c in node.operation if c.isdigit()]
            return rank - 1 - digits[0] if digits else 1
        if node.kind == "linear" or node.operation in _LAST_AXIS_NORMS:
            return rank - 1
        if node.operation == "multi_head_attention_forward":
            return rank - 1
        inputs = [self.nodes[i] for i in node.data_inputs]
        known = [(each, axis) for each in inputs if (axis := each.channel_axis) is not None]
        if not known:
            return 1 if node.kind == "norm" else None
        source, axis = known[0]
        if node.kind == "norm":
            return axis if source.shape == node.shape else 1
        if node.operation in ("permute", "transpose", "movedim", "moveaxis", "t", "T", "mT"):
            order = axis_order(node, len(source.shape))
            return order.index(axis) if axis in order else None
        if node.kind == "matmul" or node.operation == "scaled_dot_product_attention":
            return None
        same_shape = [axis for each, axis in known if each.shape == node.shape]
        return same_shape[0] if same_shape else _carried(source.shape, axis, node.shape)


def axis_order(node: Node, rank: int) -> list[int]:
    """The source axis of each axis of the result, for an operation that moves axes."""
    order = list(range(rank))
    if node.operation in ("t", "T"):
        return order[::-1]
    if node.operation == "mT":
        return [*order[:-2], order[-1], order[-2]]
    given = (*node.arguments, *node.keywords.values())
    values = [value for value in given if not isinstance(value, Ref)]
    if node.operation == "permute":
        return _axes(values[0] if len(values) == 1 else values, rank)
    if node.operation == "transpose":
        a, b = _axes(values[:2], rank)
        order[a], order[b] = order[b], order[a]
        return order
    sources, targets = (_axes(value, rank) for value in values[:2])
    rest = iter([d for d in order if d not in sources])
    moved = dict(zip(targets, sources, strict=True))
    return [moved[d] if d in moved else next(rest) for d in order]


def _axes(named: object, rank: int) -> list[int]:
    """The axes that an argument names, counted from the front."""
    each = named if isinstance(named, tuple | list) else (named,)
    return [index(cast("SupportsIndex", axis)) % rank for axis in each]


def _carried(before: tuple[int, ...], axis: int, after: tuple[int, ...]) -> int | None:
    """The axis of the same size that has the same sizes after it, or before it, once a reshape,
    slice, pool or concatenation was made."""
    size = before[axis]
    same_tail = [
        a for a, n in enumerate(after) if n == size and after[a + 1 :] == before[axis + 1 :]
    ]
    if same_tail:
        return same_tail[-1]
    volume = prod(before[axis + 1 :])
    equal = [a for a, n in enumerate(after) if n == size and prod(after[a + 1 :]) == volume]
    if equal:
        return equal[-1]
    same_head = [a for a, n in enumerate(after) if n == size and after[:a] == before[:axis]]
    if same_head:
        return same_head[0]
    if len(before) == len(after) and before[:axis] == after[:axis] and axis > 0:
        return axis  # the number of channels changed in place: concatenation, split, padding
    if len(before) == len(after) and before[axis + 1 :] == after[axis + 1 :]:
        return axis
    return None
