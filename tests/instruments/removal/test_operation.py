"""Which modules go with a step, question by question, on blocks of a few calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import attnlab
from attnlab._errors import ShortenError
from attnlab.residuals import Step
from attnlab.residuals.example import run_once
from attnlab.residuals.graph import Graph
from attnlab.residuals.steps import find_steps
from attnlab.surgery.shortening.operation import (
    _handed_out,
    _is_block,
    _word_for,
    branch_nodes,
    empty_block,
    ends_of,
    modules_within,
    named,
    parameters_left,
)

X = torch.randn(2, 5, 6, generator=torch.Generator().manual_seed(0))


class Block(nn.Module):
    """`x` and what a function makes of it with two layers and a parameter."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.a, self.b = (nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(2))
        self.bias = nn.Parameter(torch.ones(2, 5, 6))
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def step_of(function: Callable[..., Any]) -> tuple[Graph, Step]:
    """The graph and the last step of a block after a layer, `1`."""
    torch.manual_seed(0)
    graph = run_once(nn.Sequential(nn.Linear(6, 6), Block(function), nn.Linear(6, 6)), X).graph
    return graph, find_steps(graph)[-1]


BOTH = ["1.a", "1.b"]
ENDS: dict[str, tuple[Callable[..., Any], list[str] | None]] = {
    "a layer": (lambda m, x: x + m.a(x), ["1.a"]),
    "two in a row": (lambda m, x: x + m.b(m.a(x)), ["1.b"]),
    "a sum": (lambda m, x: x + (m.a(x) + m.b(x)), BOTH),
    "a difference": (lambda m, x: x + (m.a(x) - m.b(x)), BOTH),
    "a product": (lambda m, x: x + m.a(x) * m.b(x), ["1.a"]),
    "a product with a function": (lambda m, x: x + F.relu(m.a(x)) * m.b(x), ["1.b"]),
    "a quotient": (lambda m, x: x + m.a(x) / m.b(x), ["1.a"]),
    "a quotient of a function": (lambda m, x: x + F.relu(m.a(x)) / m.b(x), None),
    "a parameter over it": (lambda m, x: x + m.bias / m.a(x), None),
    "a half": (lambda m, x: x + 0.5 * m.a(x), ["1.a"]),
    "a third": (lambda m, x: x + m.a(x) / 3, ["1.a"]),
    "another order": (lambda m, x: x + m.a(x).flip(1).transpose(0, 1).transpose(0, 1), None),
    "moved": (lambda m, x: x + m.a(x).transpose(0, 1).reshape(2, 5, 6), ["1.a"]),
    "put together": (lambda m, x: x + torch.cat((m.a(x)[:1], m.b(x)[1:])), BOTH),
    "negative": (lambda m, x: x + (-m.a(x)), ["1.a"]),
    "one more": (lambda m, x: x + (m.a(x) + 1), None),
    "one less": (lambda m, x: x + (m.a(x) - 1), None),
    "taken from one": (lambda m, x: x + (1 - m.a(x)), None),
    "a bias": (lambda m, x: x + (m.a(x) + m.bias), None),
    "a bias taken away": (lambda m, x: x + (m.a(x) - m.bias), None),
    "a function": (lambda m, x: x + torch.cos(m.a(x)), None),
    "twice": (lambda m, x: x + m.a(m.a(x)), None),
    "a layer and a function": (lambda m, x: x + (m.a(x) + torch.cos(x)), None),
}


@pytest.mark.parametrize("name", ENDS)
def test_what_makes_a_branch_zero_if_it_returns_zeros(name: str) -> None:
    function, expected = ENDS[name]
    graph, step = step_of(function)
    found = ends_of(graph, graph.nodes[step.branch_node], step.owner)
    assert found == expected
    if expected is None:
        return
    network = nn.Sequential(nn.Linear(6, 6), Block(function), nn.Linear(6, 6)).eval()
    for path in expected:
        network.get_submodule(path).register_forward_hook(lambda *given: 0 * given[2])
    with torch.no_grad():
        torch.testing.assert_close(network(X), network[2](network[0](X)))


def operations(graph: Graph, found: set[int]) -> list[str]:
    return [graph.nodes[index].operation for index in sorted(found)]


def test_what_only_a_branch_needs() -> None:
    graph, step = step_of(lambda m, x: (x + m.a(torch.cos(x)) * torch.exp(x)).sin())
    assert operations(graph, branch_nodes(graph, step)) == ["cos", "linear", "tanh", "exp", "mul"]

    def read(m: Any, x: Tensor) -> Tensor:
        seen = torch.cos(x)
        return (x + m.a(seen)) * seen.mean()

    graph, step = step_of(read)
    assert operations(graph, branch_nodes(graph, step)) == ["linear", "tanh"]
    assert modules_within(graph, branch_nodes(graph, step)) == ["1.a"]


def test_modules_all_of_whose_work_goes() -> None:
    graph, step = step_of(lambda m, x: x + m.b(m.a(x)))
    nodes = branch_nodes(graph, step)
    assert modules_within(graph, nodes) == ["1.a", "1.b"]
    assert modules_within(graph, nodes - {step.branch_node}) == ["1.a", "1.b.0"]
    assert modules_within(graph, nodes | {step.graph_node}) == ["1"]
    assert modules_within(graph, set()) == []


def test_parameters_of_modules_that_stay() -> None:
    graph, step = step_of(lambda m, x: x + m.b(m.a(x) * m.bias))
    nodes = branch_nodes(graph, step)
    assert parameters_left(graph, nodes, ["1.a", "1.b"]) == ["1.bias"]
    assert parameters_left(graph, nodes, ["1.b"]) == ["1.a.0.weight", "1.a.0.bias", "1.bias"]
    assert parameters_left(graph, nodes, ["1"]) == []
    assert parameters_left(graph, set(), []) == []


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda m, x: x + m.a(x), ("1", "identity")),
        (lambda m, x: torch.relu(x + m.a(x)), ("1", "relu")),
        (lambda m, x: (x.float() + m.a(x)).to(x.dtype), ("1", "identity")),
        # What a step that was removed before has left.
        (lambda m, x: (s := x + torch.zeros_like(x)) + m.a(s), ("1", "identity")),
        (lambda m, x: (s := torch.zeros_like(x) + x) + m.a(s), ("1", "identity")),
        (lambda m, x: (s := x + m.bias) + m.a(s), None),
        (lambda m, x: torch.sigmoid(x + m.a(x)), None),
        (lambda m, x: torch.relu(2 * (x + m.a(x))), None),
        (lambda m, x: (s := m.b(x)) + m.a(s), None),
    ],
)
def test_a_block_that_hands_on_what_it_is_given(
    function: Callable[..., Any], expected: tuple[str, str] | None
) -> None:
    graph, step = step_of(function)
    assert empty_block(graph, step, [step]) == expected


@pytest.mark.parametrize(
    ("before", "word"),
    [
        ([nn.ReLU()], "identity"),
        ([nn.ReLU(), nn.MaxPool1d(3, 1, 1)], "identity"),
        ([nn.ReLU(), nn.AvgPool1d(3, 1, 1)], "relu"),
        ([nn.Tanh()], "relu"),
        ([nn.MaxPool1d(3, 1, 1)], "relu"),
    ],
)
def test_a_relu_goes_if_nothing_is_negative(before: list[nn.Module], word: str) -> None:
    torch.manual_seed(0)
    block = Block(lambda m, x: torch.relu(x + m.a(x)))
    graph = run_once(nn.Sequential(nn.Linear(6, 6), *before, block), X).graph
    (step,) = find_steps(graph)
    assert empty_block(graph, step, [step]) == (str(len(before) + 1), word)


def test_a_block_that_hands_on_something_else_than_its_first_input() -> None:
    """Its stand-in would hand on the first."""

    class Beside(Block):
        def forward(self, update: Tensor, state: Tensor) -> Tensor:
            return state + self.a(state * update)

    class Outer(nn.Module):
        def __init__(self, first: bool) -> None:
            super().__init__()
            self.stem, self.layers, self.first = nn.Linear(6, 6), nn.ModuleList(), first
            self.layers.append(Beside(print))

        def forward(self, x: Tensor) -> Tensor:
            x = self.stem(x)
            given = (x.exp(), x)
            if self.first:
                return self.layers[0](*given)
            return self.layers[0](x, x)

    for first, expected in ((True, None), (False, ("layers.0", "identity"))):
        graph = run_once(Outer(first), X).graph
        (step,) = find_steps(graph)
        assert empty_block(graph, step, [step]) == expected


def test_two_steps_of_a_block_go_together() -> None:
    graph, last = step_of(lambda m, x: (s := x + m.a(x)) + m.b(s))
    first, _ = find_steps(graph)
    assert (named(first), named(last)) == ("1.0 (1)", "1.0:1 (1)")
    assert empty_block(graph, last, [last]) is None
    assert empty_block(graph, last, [first, last]) == ("1", "identity")


@pytest.mark.parametrize(
    ("name", "block", "inside"),
    [
        ("layer.1", "layer.1", True),
        ("layer.1.mlp", "layer.1", True),
        ("layer.10", "layer.1", False),
        ("layer", "layer.1", False),
        ("layer", "", False),
        ("", "", False),
    ],
)
def test_modules_of_a_block(name: str, block: str, inside: bool) -> None:
    assert _is_block(name, block) is inside


WIDE = torch.ones(2, 5, 9)


@pytest.mark.parametrize(
    ("given", "keywords", "output", "word"),
    [
        ((X,), {}, X, "identity"),
        ((X,), {}, [X, X], "identity:list"),
        ((X,), {}, (X, None, X), "identity:3"),
        ((X,), {}, (X,), "identity:1"),
        ((X,), {}, WIDE, "zeros:9"),
        ((None,), {"x": X, "y": WIDE}, WIDE, "zeros:9"),
        ((X,), {}, X[:1], "identity"),
        ((X,), {}, X[0], "identity"),
        ((X,), {}, WIDE[:, :3], "identity"),
        ((X,), {}, None, "identity"),
    ],
)
def test_what_answers_in_the_place_of_a_module(
    given: tuple[object, ...], keywords: dict[str, object], output: object, word: str
) -> None:
    assert _word_for(given, keywords, output) == word


def test_how_many_tensors_of_a_module_are_read_outside() -> None:
    class Two(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            made = x.exp()
            return made, made.tanh(), made.cos()

    class Reads(nn.Module):
        def __init__(self, *places: int) -> None:
            super().__init__()
            self.two, self.places = Two(), places

        def forward(self, x: Tensor) -> Tensor:
            made = self.two(x)
            return torch.stack([made[place] + 1 for place in self.places])

    for places, number in (((0,), 1), ((1, 2), 2), ((0, 1, 2), 3), ((1, 1), 1)):
        assert _handed_out(run_once(Reads(*places), X).graph, "two") == number


def test_what_is_not_zero_if_its_layer_is() -> None:
    """A number that the block takes from its branch stays, and is said."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(6, 6), Block(lambda m, x: (x + (m.a(x) - 1)).exp()))
    with pytest.raises(ShortenError) as raised:
        attnlab.shorten(network, ["1"], example=X)
    assert str(raised.value).endswith(
        "its block does more than this step, and no module of it makes the branch."
    )
