"""Walk back from a gate to the parameters that can take it.

Nodes are visited against the order of execution, so that a tensor is reached after everything that
reads it. Whatever reads a tensor on the way without leading to the gate asks for it unchanged;
where that contradicts, the gate cannot be folded this way. Where an operation offers several ways,
they are tried in turn.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field

import torch
from torch import Tensor

from attnlab.residuals.graph import Node
from attnlab.surgery.folding._flow import Flow, references, replayed
from attnlab.surgery.folding._ids import NOT_READ, Refusal, merge, pull_back, unexpanded
from attnlab.surgery.folding._rules import selects, unchanged, ways
from attnlab.surgery.folding._way import Way

_MOST_ATTEMPTS = 64
"""Ways that are tried for one gate. All 65 gates of ResNet-20, ConvNeXt, MobileNetV3, ViT and
RegNet fold by the first. A product of two tensors can take a gate in either, so each on the way
doubles the ways: those of six are all tried."""
_OF_A_LAYER = frozenset(("pow", "square", "rsqrt", "sqrt", "copy"))
"""Operations that say nothing by themselves: what a norm that is written by hand is made of."""


@dataclass(frozen=True)
class Demand:
    """`reader` asks for `source` with these ids."""

    reader: int
    source: int
    ids: Tensor


@dataclass(frozen=True)
class Scaling:
    """What takes a gate: parameters with the ids of their elements."""

    parameters: dict[str, Tensor]
    not_negative: frozenset[int]
    """The ids whose gates must not be negative."""
    behind: tuple[str, ...] = ()
    """The modules that take it on their input; empty where it is taken before the gate."""
    inverse: dict[str, Tensor] = field(default_factory=dict)
    """Parameters that take 1 / gate, with the ids of their elements: of layers that read a tensor
    which is scaled now."""
    offsets: dict[str, float] = field(default_factory=dict)
    """Of parameters to which the network adds a number, that number: p + offset is scaled."""
    silenced: dict[str, Tensor] = field(default_factory=dict)
    """Parameters of which elements become zero, and which: they made a gate of the network's."""


Undo = Callable[[int, Tensor, int], Scaling]
"""Given a node, the ids that it is scaled by, and a reader of it: what that reader must be divided
by to compute what it did."""


def walk_back(
    flow: Flow,
    demands: Iterable[Demand],
    keep: int,
    foldable: Set[str],
    barriers: Set[int] = frozenset(),
    undo: Undo | None = None,
) -> Scaling:
    """The parameters that give the readers what they ask for; raises `Refusal` if there are none.

    `foldable` names the parameters that may be changed, `barriers` are nodes that hold a gate which
    depends on the input. With `undo`, other readers of a scaled tensor may undo that.
    """
    demands = list(demands)
    choices: dict[int, int] = {}
    reasons: list[Refusal] = []
    for _ in range(_MOST_ATTEMPTS):
        attempt = _Attempt(flow, keep, foldable, barriers, undo, choices)
        try:
            return attempt.run(demands)
        except Refusal as reason:
            reasons.append(reason)
        if not attempt.next_choices():
            break
    # A learned scale that cannot take it matters less than why what it scales cannot.
    raise next((r for r in reasons if isinstance(r, _Located) and r.node.data), reasons[0])


@dataclass
class _Attempt:
    flow: Flow
    keep: int
    foldable: Set[str]
    barriers: Set[int]
    undo: Undo | None
    choices: dict[int, int]
    """Of nodes with several ways: which one is taken, in the order in which they were met."""
    options: dict[int, int] = field(default_factory=dict)
    asked: dict[int, dict[int, Tensor]] = field(default_factory=lambda: defaultdict(dict))
    served: set[tuple[int, int]] = field(default_factory=set)
    parameters: dict[str, Tensor] = field(default_factory=dict)
    not_negative: set[int] = field(default_factory=set)
    inverse: dict[str, Tensor] = field(default_factory=dict)
    added: dict[int, float] = field(default_factory=dict)
    """Of nodes to which a number is added before they are scaled, that number."""
    offsets: dict[str, float] = field(default_factory=dict)
    routers: set[str] = field(default_factory=set)
    """Modules that choose by values which of their layers run."""

    def run(self, demands: list[Demand]) -> Scaling:
        for demand in demands:
            self._ask(demand.reader, demand.source, 0, demand.ids)
        while self.asked:
            index = max(self.asked)
            self._visit(self.flow.nodes[index], self.asked.pop(index))
        for router in self.routers:
            self._check_experts(router)
        not_negative = frozenset(self.not_negative)
        return Scaling(self.parameters, not_negative, inverse=self.inverse, offsets=self.offsets)

    def _check_experts(self, router: str) -> None:
        """All experts must take the gate: those that the example does not reach run in another."""
        prefix, named = (f"{router}.", repr(router)) if router else ("", "the network")
        for name, ids in self.parameters.items():
            if not name.startswith(prefix):
                continue
            pattern = re.sub(r"\b\d+\b", r"\\d+", name.removeprefix(prefix))
            alike = re.compile(re.escape(prefix) + pattern)
            others = {each for each in self.foldable if alike.fullmatch(each)}
            if bool((ids == NOT_READ).any()) or others - self.parameters.keys():
                raise _too_few_tokens(named)
        if self._has_more_experts(router):
            raise _too_few_tokens(named)

    def _has_more_experts(self, router: str) -> bool:
        """Whether the router chose among more experts than ran: those without parameters (the
        identities of LongCat) cannot take a gate, and nothing but their scores tells of them."""
        own = [n for n in self.flow.nodes if n.owner == router and n.operation == "index_add"]
        ran = Counter(node.call for node in own)
        return any(ran[node.call] < _scores(self.flow.nodes, node) for node in own)

    def next_choices(self) -> bool:
        """Turn to the next way at the last node that has one left; False if none has."""
        for index in reversed(list(self.choices)):
            if self.choices[index] + 1 < self.options[index]:
                self.choices[index] += 1
                return True
            del self.choices[index]
        return False

    def _ask(self, reader: int, source: int, place: int, ids: Tensor) -> None:
        if bool((unexpanded(ids) == NOT_READ).all()):
            return
        self.served.add((reader, source))
        try:
            self.asked[source][place] = merge(self.asked[source].get(place), ids)
        except Refusal as reason:
            raise self._located(reason, self.flow.nodes[source]) from None

    def _visit(self, node: Node, asked: dict[int, Tensor]) -> None:
        try:
            asked = self._with_other_readers(node, asked)
            if all(self._keeps(ids) for ids in asked.values()):
                return
            if node.index in self.barriers:
                raise Refusal("depends on the input")
            if node.index in self.flow.graph.outputs:
                raise Refusal("is also returned by the network")
            if node.place is not None:
                self._ask(node.index, node.inputs[0], node.place, asked[0])
            elif node.operation == "parameter":
                self._take(node, asked[0])
            elif node.operation in ("constant", "input", "opaque"):
                raise Refusal("cannot be scaled: no parameter makes it")
            else:
                self._hand_on(node, self._chosen(node, ways(self.flow, node, asked)))
        except Refusal as reason:
            raise self._located(reason, node) from None

    def _keeps(self, ids: Tensor) -> bool:
        """Whether nothing of these ids is to be scaled."""
        ids = unexpanded(ids)
        return bool(((ids == NOT_READ) | (ids == self.keep)).all())

    def _hand_on(self, node: Node, way: Way) -> None:
        offset = way.offset or self.added.get(node.index, 0.0)
        if offset and not way.offset and not unchanged(node):
            raise Refusal("makes what a number is added to, which the gate would have to scale")
        if way.chosen_by_values:
            self.routers.add(node.owner)
        for source, ids in way.asked.items():
            self._ask(node.index, source, 0, ids)
            if offset:
                self.added[source] = offset
            if way.not_negative:
                self.not_negative |= set(ids.unique().tolist()) - {NOT_READ, self.keep}

    def _chosen(self, node: Node, found: list[Way]) -> Way:
        if len(found) == 1:
            return found[0]
        self.options[node.index] = len(found)
        return found[self.choices.setdefault(node.index, 0)]

    def _with_other_readers(self, node: Node, asked: dict[int, Tensor]) -> dict[int, Tensor]:
        """What is asked of `node`, with what all who read it on other ways need: no change."""
        for reader in self.flow.readers[node.index]:
            if (reader, node.index) in self.served or not self.flow.matters(reader):
                continue
            other = self.flow.nodes[reader]
            if other.place is not None:
                place, needs = other.place, torch.full(other.shape, self.keep)
                if not self.flow.readers[reader]:
                    continue
            else:
                place, needs = 0, self._needed_by(other, node)
            try:
                asked[place] = merge(asked.get(place), needs)
            except Refusal:
                self._undo(node, asked[place], other)
        return asked

    def _undo(self, node: Node, ids: Tensor, reader: Node) -> None:
        """`node` is scaled by `ids`: let `reader`, which needs it as it was, undo that."""
        if self.undo is None or reader.place is not None:
            if described(reader) == described(node):
                raise Refusal("reads what it is given in several ways, of which not all scale")
            raise Refusal(f"is also read by {described(reader)}")
        found = self.undo(node.index, ids, reader.index)
        if found.offsets or self.inverse.keys() & found.parameters.keys():
            raise Refusal(f"is also read by {described(reader)}")
        self.inverse |= found.parameters
        self.not_negative |= found.not_negative

    def _needed_by(self, reader: Node, node: Node) -> Tensor:
        everything = torch.full(node.shape, self.keep)
        if not selects(reader) or [ref.index for ref in references(reader)] != [node.index]:
            return everything
        return pull_back(
            lambda tensor: replayed(self.flow, reader, [node.index], [tensor]),
            [node.shape],
            {0: torch.full(reader.shape, self.keep)},
        )[0]

    def _take(self, node: Node, ids: Tensor) -> None:
        if not node.name:
            raise Refusal("is a parameter that the network does not list")
        if node.name not in self.foldable:
            raise Refusal("is a buffer or shared with another module")
        self.parameters[node.name] = ids
        if node.index in self.added:
            self.offsets[node.name] = self.added[node.index]

    def _located(self, reason: Refusal, node: Node) -> Refusal:
        """Put the place in front of the reason, once."""
        if isinstance(reason, _Located):
            return reason
        return _Located(f"{described(node)} {reason}", reason.norm, node)


def _scores(nodes: Sequence[Node], added: Node) -> int:
    """How many scores the rows that `added` adds were chosen by: the last axis of what `topk` or
    `argmax` saw. A mask of the choice may have one class more, as in transformers. 0 unless the
    rows are those `where` one expert was chosen: JetMoE sorts all rows, and adds them at once."""
    waiting = [i for i in added.data_inputs if not nodes[i].floating]
    seen, scores, of_one = set(waiting), 0, False
    while waiting:
        node = nodes[waiting.pop()]
        if node.operation in ("topk", "argmax"):
            scores = nodes[node.data_inputs[0]].shape[-1]
            continue
        of_one |= node.operation in ("where", "nonzero")
        for i in node.data_inputs:
            chooses = nodes[i].operation in ("topk", "argmax")
            if i not in seen and (chooses or not nodes[i].floating):
                seen.add(i)
                waiting.append(i)
    return scores if of_one else 0


def _too_few_tokens(named: str) -> Refusal:
    return Refusal(
        f"the example reaches only some experts of {named}; pass one with more tokens: example=..."
    )


class _Located(Refusal):
    """A refusal that says where."""

    def __init__(self, reason: str, norm: str, node: Node) -> None:
        super().__init__(reason, norm)
        self.node = node


def described(node: Node) -> str:
    """`silu in 'blocks.0.act'`: for messages."""
    if node.operation == "parameter":
        return f"the parameter {node.name!r}" if node.name else "a parameter"
    if node.operation == "constant":
        return "a tensor made while running"
    if node.operation == "input":
        return "the network's input"
    if node.operation == "whole":
        return f"the gate {node.owner!r}"
    if not node.owner:
        return node.operation
    if unchanged(node) or node.operation in _OF_A_LAYER:
        return f"the layer {node.owner!r}"
    return f"{node.operation} in {node.owner!r}"
