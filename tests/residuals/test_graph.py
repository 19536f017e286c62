"""Paths through a recorded run, against those found by walking back from every node; who reads what
of a few calls, by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.residuals.graph import Graph, Node, reads
from attnlab.residuals.recorder import record


class Crossing(nn.Module):
    """Branches that part, join and end nowhere; the first acts on the input itself."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three = (nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        first = x + self.one(x).relu()
        left, right = self.two(first), self.three(first).tanh()
        self.forgotten = left * 2
        return first + left * right


def behind(graph: Graph, index: int) -> set[int]:
    """The node and all that it was computed from."""
    found, open_ = {index}, [index]
    while open_:
        more = [each for each in graph.nodes[open_.pop()].data_inputs if each not in found]
        found.update(more)
        open_ += more
    return found


def test_what_lies_between_two_nodes_is_on_a_path() -> None:
    torch.manual_seed(0)
    graph, _ = record(Crossing(), (torch.randn(2, 4),), {})
    indices = [node.index for node in graph.nodes if node.data]
    assert len(indices) >= 9
    for end in indices:
        found = [node.index for node in graph.between(-1, end)]
        assert sorted(found) == sorted(behind(graph, end))
        for start in indices:
            on_a_path = {i for i in behind(graph, end) if start in behind(graph, i)} - {start}
            assert {node.index for node in graph.between(start, end)} == on_a_path, (start, end)
            assert graph.computed_from(end, start) == (start in behind(graph, end) - {end})


class Two(nn.Module):
    """Two inputs that meet in the middle."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        x = x.relu().exp() + x
        met = self.one(x) * y.tanh()
        return met.cos() + self.two(met).sin()


@pytest.mark.parametrize(("network", "inputs"), [(Crossing(), 1), (Two(), 2)])
def test_a_dominator_is_on_every_path(network: nn.Module, inputs: int) -> None:
    """The last node without which nothing of the outside reaches another."""
    graph, _ = record(network, (torch.randn(2, 4),) * inputs, {})
    indices = [node.index for node in graph.nodes if node.data]

    def all_pass(index: int, by: int) -> bool:
        open_, seen = [index], {by}
        while open_:
            at = open_.pop()
            if at in seen:
                continue
            seen.add(at)
            if graph.nodes[at].operation == "input":
                return False
            open_ += graph.nodes[at].data_inputs
        return True

    def passed(*to: int) -> int:
        return max((i for i in indices if all(all_pass(end, i) for end in to)), default=-1)

    for a in indices:
        before = [i for i in indices if i != a and all_pass(a, i)]
        assert graph.dominator(a) == max(before, default=-1)
        for b in indices:
            assert graph.common_dominator(a, b) == passed(a, b), (a, b)


class Function(nn.Module):
    def __init__(self, function: Callable[[Tensor], object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> object:
        return self.function(x)


def recorded(function: Callable[[Tensor], object]) -> tuple[Graph, list[int]]:
    """The graph of a function, and the nodes of what it returned."""
    torch.manual_seed(0)
    graph, _ = record(Function(function), (torch.rand(2, 4),), {})
    return graph, list(graph.outputs)


@pytest.mark.parametrize(
    ("function", "more"),
    [
        (lambda x: (x, x + torch.randn(2, 4)), True),
        (lambda x: (x, x * torch.rand_like(x)), True),
        (lambda x: (x, torch.empty_like(x).normal_() + x), True),
        (lambda x: ((y := x + torch.randn(2, 4)), y.relu()), False),  # the same noise
        (lambda x: ((y := x + torch.randn(2, 4)), y + torch.randn(2, 4)), True),
        (lambda x: (x, x[:, torch.randperm(4)]), False),  # it chooses alone
        (lambda x: (x, F.dropout(x, 0.5)), False),
        (lambda x: (x, F.dropout(x + 0, 0.5, True, True)), False),
        (lambda x: (x, x.relu()), False),
    ],
)
def test_noise_is_in_the_values(function: Callable[[Tensor], object], more: bool) -> None:
    graph, (than, index) = recorded(function)
    assert graph.has_more_noise(index, than) is more
    assert not graph.has_more_noise(than, index)


def test_what_a_call_reads() -> None:
    def node(operation: str, **more: bool) -> Node:
        return Node(9, operation, inputs=(4, 5), **more)  # type: ignore[arg-type]

    assert reads(node("add")) == (4, 5)
    assert reads(node("zeros_like")) == ()
    assert reads(node("type_as")) == (4,)
    assert reads(node("normal", random=True, in_place=True)) == (5,)
    assert reads(node("normal", random=True)) == (4, 5)
    assert reads(node("relu", in_place=True)) == (4, 5)
    assert reads(node("dropout", random=True, in_place=True)) == (4, 5)


def test_who_reads_what_leads_out() -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        made = x.relu()
        made.square().mean()  # for statistics
        return made, made.exp(), (made * 2).view(-1).tanh()

    graph, (made, grown, last) = recorded(function)
    doubled = graph.before_layout(graph.nodes[last].inputs[0])
    assert graph.nodes[doubled].operation == "mul"
    assert graph.before_layout(doubled) == doubled
    assert graph.readers(made) == [grown, doubled]
    assert [graph.nodes[each].operation for each in graph.users[made]] == ["square", "exp", "mul"]
    assert [graph.leads_out(each) for each in graph.users[made]] == [False, True, True]
    assert graph.leads_out(last)
    unknown = Graph(graph.nodes, {})  # what it returned could not be seen
    assert all(unknown.leads_out(node.index) for node in graph.nodes)


def test_a_layout_of_two_tensors_is_its_own() -> None:
    graph, (both, one) = recorded(lambda x: (x.relu().expand_as(x.exp()), x.relu().view(-1)))
    assert graph.nodes[graph.before_layout(both)].operation == "relu"  # of the other its shape
    assert graph.nodes[graph.before_layout(one)].operation == "relu"
    made = [Node(0, "input"), Node(1, "exp", inputs=(0,)), Node(2, "roll", inputs=(0, 1))]
    assert Graph(made, {}).before_layout(2) == 2


def test_calls_of_one_module_and_what_norms_compute() -> None:
    class Norm(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * torch.rsqrt(x.square().mean(-1, keepdim=True)) * 2

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.act = Norm(), nn.Tanh()

        def forward(self, x: Tensor) -> Tensor:
            x = self.norm(self.norm(x) * 3) * 4
            return torch.add(x.chunk(2)[0], self.act(x)[:1], alpha=2)

    graph, _ = record(Network(), (torch.rand(2, 4),), {})
    assert graph.norm_calls == {("norm", 0), ("norm", 1)}
    assert graph.calls == {"": 1, "norm": 2, "act": 1}
    own = [node for node in graph.nodes if node.operation == "mul" and not node.owner]
    called, written = own[:2], own[2]
    assert written.written_out  # by 2, for the sum
    assert graph.direct_calls(called[0]) == called
    inner = [n for n in graph.nodes if n.operation == "mul" and (n.owner, n.call) == ("norm", 1)]
    assert graph.direct_calls(inner[0]) == inner
    assert len(inner) == 2
    slices = [node for node in graph.nodes if node.operation == "getitem"]
    assert [node.place for node in slices] == [0, 1, None]
    assert graph.direct_calls(slices[2]) == slices[2:]
