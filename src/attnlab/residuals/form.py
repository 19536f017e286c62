"""What a step is made of: `X' = carry(X) + write(Δt ⊗ f(read(X)))`, read off the recorded run.

In a ResNet the three are identities. Granite multiplies f by a number, LayerScale by a vector,
squeeze-and-excitation by a gate. Hyper-connections keep n streams: a row over streams reads from
them, a column writes to them, and an n×n matrix may carry them on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from attnlab.residuals.graph import Graph, Node, Ref

Role = Literal["carry", "read", "write", "size", "inside"]
"""Where in a step something multiplies. `size`: at the end of the branch, where it is Δt. `inside`:
within f, where all of f passes it (a gate after attention, before its output projection)."""
Origin = Literal["number", "parameter", "state", "inserted"]
"""Of what: a number in the code, learned numbers, what the network makes of its state, or a gate
that attnlab inserted."""
Carry = Literal["identity", "factor", "matrix", "layers"]

_BOUNDED = frozenset(("sigmoid", "hardsigmoid"))
"""What a gate ends in. A product with another activation is a part of f (SwiGLU)."""
_COLLAPSES = frozenset(("sum", "mean"))


@dataclass(frozen=True)
class ProductKey:
    """Which product of a network a multiplier is in: the same in every run, counted among those
    that the module's own forward makes, not the modules in it."""

    owner: str
    call: int
    operation: str
    """`mul` or `matmul`."""
    number: int
    """The product's place, from 0, among those of that call; and of how many."""
    products: int
    operand: int
    """Which of its two operands the multiplier is."""


@dataclass(frozen=True)
class Multiplier:
    """What multiplies in a step: a constant, a learned vector, a gate, a matrix."""

    role: Role
    origin: Origin
    shape: tuple[int, ...]
    """Its shape as it multiplies; empty for a number."""
    value: float | None = None
    """The value of a number."""
    name: str = ""
    """The parameter, or the module that computes it."""
    node: int = -1
    """The product in the recorded graph."""
    key: ProductKey | None = None
    """Where a gate or matrix that the network computes can be watched."""
    channel_axes: tuple[int, ...] = ()
    """The axes of its value that are channels: not those of inputs and places."""

    @property
    def numbers(self) -> int:
        """How many different numbers it has for one place of one input."""
        if self.origin in ("number", "inserted"):
            return 1
        return prod(self.shape[a] for a in self.channel_axes) if self.channel_axes else 1

    def __str__(self) -> str:
        if self.value is not None:
            return f"{self.value:.4g}"
        if self.origin == "parameter":
            number = prod(self.shape)
            return f"{self.name} ({number} number{'s' * (number > 1)})"
        if self.origin == "inserted":
            return f"{self.name} (inserted)"
        what = "matrix" if self.role == "carry" else "gate"
        per = "×".join(str(self.shape[a]) for a in self.channel_axes) or "1"
        return f"{what} of {self.name or 'the network'} ({per})"


@dataclass(frozen=True)
class StepForm:
    """The parts of one step."""

    carry: Carry
    """What happens to the state beside the branch. `layers`: a projection shortcut."""
    streams: int
    """How many streams the state has; 1 but in hyper-connections."""
    stream_axis: int
    """The axis of the state that holds the streams; -1 where they lie in its channels, or if there
    is one."""
    multipliers: tuple[Multiplier, ...]

    def by_stream(self, state: Tensor, channel_axis: int) -> Tensor:
        """A state as (inputs, streams, ...), its channels last."""
        features = state.movedim(channel_axis, -1)
        if self.stream_axis < 0:
            return features.unflatten(-1, (self.streams, -1)).movedim(-2, 1)
        return features.movedim(self.stream_axis, 1)

    def having(self, *roles: Role) -> tuple[Multiplier, ...]:
        """The multipliers of these roles, in the order of execution."""
        return tuple(each for each in self.multipliers if each.role in roles)

    @property
    def factor(self) -> float:
        """The product of the numbers that scale the branch, as Granite's residual multiplier."""
        return prod(each.value for each in self.having("size", "write") if each.value is not None)

    @property
    def gates(self) -> tuple[Multiplier, ...]:
        """What the network learned or computes to multiply by, as far as it can be watched: gates,
        LayerScale, rows and columns over streams, matrices."""
        return tuple(each for each in self.multipliers if each.key is not None)

    def __str__(self) -> str:
        """Write the step as a formula: `X + f(X)`, `X + 0.22 f(X)`, `C X + w f(r X)`."""
        carried = {"identity": "X", "factor": "", "matrix": "C X", "layers": "P(X)"}[self.carry]
        if self.carry == "factor":
            number = prod(m.value for m in self.having("carry") if m.value is not None)
            carried = f"{number:.4g} X" if number != 1 else "c X"
        sizes = [m for m in self.having("size") if m.value is None]
        signs = "".join({"parameter": "γ", "state": "g", "inserted": "Δt"}[m.origin] for m in sizes)
        written = "w" if self.having("write") else ""
        reads = "r X" if self.having("read") else "X"
        function = "f°" if self.having("inside") else "f"
        factor = self.factor
        number_text = "" if abs(factor) == 1 else f"{abs(factor):.4g}"
        parts = [part for part in (number_text, signs, written, f"{function}({reads})") if part]
        return f"{carried} {'-' if factor < 0 else '+'} {' '.join(parts)}"


class FormOf(NamedTuple):
    """The parts of a step, and the channel axis of its state: with streams that of f."""

    form: StepForm
    channel_axis: int


def form_of(
    graph: Graph, node: Node, kind: str, state: int, shortcut: int, branch: int, axis: int
) -> FormOf:
    """The parts of the step that `node` makes; `axis` is the state's channel axis as far as its
    operands tell: one that was made by stretching f over streams does not."""
    source, written = _Finder(graph, state, ()).end_of_branch(branch)
    made = graph.nodes[source]
    if len(made.shape) < len(node.shape) and any(each.role == "write" for each in written):
        axis = len(node.shape) - len(made.shape) + made.channels_on
    elif kind == "mixed":
        axis = len(node.shape) - 1
    beside = len(node.shape) > 3 and (kind == "mixed" or len(made.shape) < len(node.shape))
    last_place = axis - 1 if beside else axis
    find = _Finder(graph, state, node.shape[1:last_place] if axis > 1 else ())
    carry, carried = find.carry(kind, shortcut)
    source, written = find.end_of_branch(branch)
    streams = _streams(graph, carried, written)
    inner = find.inside(source, streams)
    stream_axis = axis - 1 if streams > 1 and node.shape[axis - 1] == streams and beside else -1
    multipliers = (*carried, *inner, *reversed(written))
    return FormOf(StepForm(carry, streams, stream_axis, multipliers), axis)


def _streams(graph: Graph, carried: list[Multiplier], written: list[Multiplier]) -> int:
    for each in carried:
        if each.origin == "state":
            return each.shape[-1]
    for each in written:
        if each.role == "write":
            made = graph.nodes[each.node].shape
            offset = len(made) - len(each.shape)
            return prod(made[a + offset] for a in each.channel_axes)
    return 1


class Squashed(NamedTuple):
    """What bounds a gate, and the gate that it makes of zeros."""

    node: int
    """The sigmoid in the recorded graph."""
    at_zero: float


def squashed(graph: Graph, index: int) -> Squashed | None:
    """The sigmoid that the tensor `index` is but for factors, constants that are added, and its
    layout; None if it is not made by one."""
    made = _activation(graph, index)
    if made is None:
        return None
    changes = []
    node = graph.nodes[index]
    while node.index != made:
        changes.append(node)
        node = graph.nodes[node.data_inputs[0]]
    value = torch.tensor(0.5, dtype=torch.float64)  # both sigmoids are 1/2 at zero
    for change in reversed(changes):
        if change.kind != "layout":
            value = _made_of(change, value)
    return Squashed(made, float(value))


def _made_of(node: Node, value: Tensor) -> Tensor:
    """What the operation, of one tensor and numbers, makes of another tensor."""
    found = node.replayed(lambda _: value.clone())
    assert isinstance(found, Tensor)
    return found


class _Finder:
    """Walks back from the operands of a step's addition."""

    def __init__(self, graph: Graph, state: int, places: tuple[int, ...]) -> None:
        self.graph = graph
        self.state = state
        self.places = places
        """The sizes of the state's axes between inputs and channels."""

    def carry(self, kind: str, shortcut: int) -> tuple[Carry, list[Multiplier]]:
        """What carries the state, and what multiplies it."""
        nodes, index = self.graph.nodes, shortcut
        found: list[Multiplier] = []
        if kind == "projection":
            return "layers", []
        while index != self.state:
            node = nodes[index]
            if node.kind == "layout" and len(node.inputs) == 1:
                index = node.inputs[0]
                continue
            if node.kind == "matmul" and kind == "mixed":
                found.append(self._computed(node, 0, "carry"))
                return "matrix", found
            constant = self._constant(node, "carry")
            if constant is None:
                break
            found.append(constant)
            index = node.data_inputs[0]
        return ("factor" if found else "identity"), found

    def end_of_branch(self, branch: int) -> tuple[int, list[Multiplier]]:
        """What f returned, and what multiplies it up to the addition, the last first."""
        nodes, index = self.graph.nodes, branch
        found: list[Multiplier] = []
        while index != self.state:
            node = nodes[index]
            if node.operation == "whole" and node.inputs:
                found.append(_inserted(node))
                index = node.inputs[0]
            elif _only_moves(node):
                index = node.data_inputs[0]
            elif (constant := self._constant(node, "size")) is not None:
                found.append(constant)
                index = node.data_inputs[0]
            elif (operand := gate_operand(self.graph, node)) is not None:
                index = node.inputs[1 - operand]
                found.append(self._computed(node, operand, self._spreads(node, index)))
            else:
                break
        return index, found

    def inside(self, source: int, streams: int) -> Iterator[Multiplier]:
        """The gates that all ways from the state to f's result pass, in the order of execution."""
        if not self.graph.computed_from(source, self.state):
            return
        path = sorted(self.graph.between(self.state, source), key=lambda node: node.index)
        for node in path:
            operand = gate_operand(self.graph, node)
            if operand is None or not self._all_pass(path, node):
                continue
            collapses = streams > 1 and any(
                self.graph.nodes[u].operation in _COLLAPSES for u in self._users(node.index)
            )
            yield self._computed(node, operand, "read" if collapses else "inside")

    def _users(self, index: int) -> list[int]:
        users = self.graph.users[index]
        if len(users) == 1 and self.graph.nodes[users[0]].kind == "layout":
            return self._users(users[0])
        return users

    def _all_pass(self, path: list[Node], product: Node) -> bool:
        around = {self.state}
        for node in path:
            if node is not product and any(i in around for i in node.inputs):
                around.add(node.index)
        return path[-1].index not in around

    def _spreads(self, node: Node, index: int) -> Role:
        """`write` where the product hands one f out to several streams."""
        given = (1,) * (len(node.shape) - len(self.graph.nodes[index].shape))
        sizes = (*given, *self.graph.nodes[index].shape)
        wider = [a for a, (n, m) in enumerate(zip(sizes, node.shape, strict=True)) if n == 1 < m]
        return "write" if any(a > 1 for a in wider) else "size"

    def _constant(self, node: Node, role: Role) -> Multiplier | None:
        """The number or parameter that scales the one tensor of data of `node`."""
        if node.operation not in ("mul", "div") or len(node.data_inputs) != 1:
            return None
        if self.graph.nodes[node.data_inputs[0]].shape != node.shape:
            return None
        others = [index for index in node.inputs if index != node.data_inputs[0]]
        if others:
            if (node.owner, node.call) in self.graph.norm_calls or node.operation == "div":
                return None
            factor = self.graph.nodes[self._before_layout(others[0])]
            shape, key = self.graph.nodes[others[0]].shape, self._key(node, others[0])
            name = factor.name or node.owner
            return Multiplier(role, "parameter", shape, None, name, node.index, key)
        numbers = [n for n in node.arguments if isinstance(n, float | int)]
        if len(numbers) != 1 or isinstance(numbers[0], bool):
            return None
        first = isinstance(node.arguments[0], Ref)
        if node.operation == "div" and (not first or not numbers[0]):
            return None
        value = float(numbers[0]) if node.operation == "mul" else 1 / float(numbers[0])
        return Multiplier(role, "number", (), value, node.owner, node.index)

    def _before_layout(self, index: int) -> int:
        node = self.graph.nodes[index]
        while node.kind == "layout" and len(node.inputs) == 1:
            node = self.graph.nodes[node.inputs[0]]
        return node.index

    def _computed(self, node: Node, operand: int, role: Role) -> Multiplier:
        value = self.graph.nodes[node.inputs[operand]]
        made = _activation(self.graph, value.index)
        source = self.graph.nodes[self.graph.before_layout(value.index) if made is None else made]
        return Multiplier(
            role,
            "state",
            value.shape,
            None,
            source.owner or node.owner,
            node.index,
            self._key(node, value.index),
            self._channel_axes(value.shape, node.shape),
        )

    def _key(self, node: Node, value: int) -> ProductKey | None:
        """None for a product that is not called: `addcmul` makes it on the way."""
        if node.written_out:
            return None
        alike = self.graph.direct_calls(node)
        place = (node.owner, node.call, node.operation, alike.index(node), len(alike))
        return ProductKey(*place, node.inputs.index(value))

    def _channel_axes(self, shape: tuple[int, ...], product: tuple[int, ...]) -> tuple[int, ...]:
        """The axes of a value that are neither inputs nor places. Axes that it is stretched along
        have one number, and are left out."""
        offset = len(product) - len(shape)
        if not self.places:  # images: channels on axis 1
            return (1 - offset,) if len(shape) > 1 - offset >= 0 else ()
        rest = [a for a in range(len(shape)) if a + offset > 0]
        for size in self.places:
            place = next((a for a in rest if product[a + offset] == size), None)
            if place is not None:
                rest.remove(place)
        return tuple(a for a in rest if shape[a] > 1)


def _inserted(node: Node) -> Multiplier:
    name = node.produced_by[0][0] if node.produced_by else node.owner
    return Multiplier("size", "inserted", (), None, name, node.index)


def _only_moves(node: Node) -> bool:
    """Whether the values stay as they are but for their order and type; Python's `sum` begins with
    0 + x."""
    if len(node.data_inputs) != 1:
        return False
    if node.operation == "add":
        return any(type(each) is int and each == 0 for each in node.arguments)
    return node.kind == "layout"


def gate_operand(graph: Graph, node: Node) -> int | None:
    """Return which operand of a product is a gate: what a sigmoid returned, but for a factor, a
    constant that is added, and its layout; None if neither is. `x · σ(x)` is an activation, not a
    gate."""
    if node.operation != "mul" or len(node.inputs) != 2 or len(node.data_inputs) != 2:
        return None
    gates = {i: _activation(graph, index) for i, index in enumerate(node.inputs)}
    found = []
    for operand, made in gates.items():
        other = graph.before_layout(node.inputs[1 - operand])
        if made is not None and _before_scale(graph, graph.nodes[made].data_inputs[0]) != other:
            found.append(operand)
    return min(found, key=lambda i: prod(graph.nodes[node.inputs[i]].shape), default=None)


def _activation(graph: Graph, index: int) -> int | None:
    index = _before_scale(graph, index, shifts=True)
    node = graph.nodes[index]
    return index if node.operation in _BOUNDED and node.data_inputs else None


def _before_scale(graph: Graph, index: int, shifts: bool = False) -> int:
    """The tensor that `index` is but for its layout and constant factors (and constants added)."""
    passed = ("mul", "div", "add") if shifts else ("mul", "div")
    node = graph.nodes[index]
    while len(node.data_inputs) == 1 and (
        node.kind == "layout" or (node.operation in passed and len(node.inputs) == 1)
    ):
        node = graph.nodes[node.data_inputs[0]]
    return node.index
