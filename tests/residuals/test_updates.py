# ruff: noqa: ARG005  (all functions take the same tensors)
"""What makes a tensor the update of a state, question by question, on a few calls written down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attnlab.residuals._arms import Arm, Projection, is_part_of_a_cell, weigh
from attnlab.residuals._update import (
    begins_with_slices,
    block_name,
    caller,
    computes,
    computing_calls,
    forms,
    has_cut,
    home,
    is_deviation,
    is_query,
    is_read_elsewhere,
    is_replacement,
    mixes_streams,
    parts,
    positions,
    twins,
)
from attnlab.residuals.graph import Graph, Node
from attnlab.residuals.recorder import record

X = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))


class Calls(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *given: Tensor) -> Any:
        return self.function(*given)


def recorded(function: Callable[..., Any], *given: Tensor) -> tuple[Graph, list[int]]:
    """The graph of a function, and the nodes of what it returned."""
    graph, _ = record(Calls(function), given or (X,), {})
    return graph, list(graph.outputs)


def nodes(operations: str) -> list[Node]:
    return [Node(number, operation) for number, operation in enumerate(operations.split())]


COMPUTE = "conv2d linear batch_norm relu matmul max_pool2d opaque lstm fft_rfft"
DO_NOT = "add mul sub view getitem cat whole parameter fft"


@pytest.mark.parametrize("operation", COMPUTE.split())
def test_these_compute(operation: str) -> None:
    assert computes(Node(0, operation))


@pytest.mark.parametrize("operation", DO_NOT.split())
def test_these_move_scale_or_add(operation: str) -> None:
    assert not computes(Node(0, operation))


@pytest.mark.parametrize(
    ("owner", "block"),
    [
        ("encoder.layer.3.output", "encoder.layer.3"),
        ("layer1.0", "layer1.0"),
        ("a.1.b.2.c.d", "a.1.b.2"),
        ("0", "0"),
        ("head.norm1", "head.norm1"),
        ("", ""),
    ],
)
def test_the_block_of_a_module(owner: str, block: str) -> None:
    assert block_name(owner) == block


def calls(*names: str) -> tuple[tuple[str, int], ...]:
    return tuple((name, 0) for name in names)


def test_a_module_that_only_adds_works_for_its_caller() -> None:
    inside = calls("", "block", "block.sum", "block.sum.inner")
    for computing, depth in (
        ({"", "block"}, 2),
        ({"block.sum"}, 3),
        ({"block.sum.inner"}, 4),
        (set(), 1),
    ):
        given = frozenset((name, 0) for name in computing)
        assert home(Node(0, "add", inside=inside), given) == inside[:depth]
    another = frozenset((name, 1) for name, _ in inside)  # other calls of the same modules
    assert home(Node(0, "add", inside=inside), another) == inside[:1]
    assert home(Node(0, "add"), another) == ()


def test_where_anything_is_computed() -> None:
    made = [
        Node(0, "relu", inside=calls("", "a")),
        Node(1, "add", inside=calls("", "b")),
        Node(2, "conv2d", inside=(("", 0), ("c", 1))),
    ]
    assert computing_calls(Graph(made, {})) == {("", 0), ("a", 0), ("c", 1)}


@pytest.mark.parametrize(
    ("inner", "around"),
    [
        (("", "layer.3"), ("",)),
        (("", "layer.3", "layer.3.out"), ("", "layer.3")),
        (("", "layer.3", "layer.3.out", "layer.3.out.low"), ("", "layer.3")),
        (("layer.3.out", "layer.3.out.low"), ("layer.3.out",)),  # nothing else is around
        (("", "layer.30", "layer.3.out"), ("", "layer.30")),
        (("", "head", "head.mlp", "head.mlp.fc"), ("", "head", "head.mlp")),
        (("",), ("",)),
        ((), ()),
    ],
)
def test_the_caller_reaches_as_far_as_the_block(
    inner: tuple[str, ...], around: tuple[str, ...]
) -> None:
    assert caller(calls(*inner)) == calls(*around)


def test_a_cut_is_passed_by_all_ways() -> None:
    path = [
        Node(1, "relu", inputs=(0,)),
        Node(2, "tanh", inputs=(0,)),
        Node(3, "conv2d", inputs=(1,)),
        Node(4, "add", inputs=(3, 2)),
    ]

    def cut(*operations: str) -> bool:
        return has_cut(0, path, lambda node: node.operation in operations)

    assert cut("relu", "tanh")
    assert cut("conv2d", "tanh")
    assert cut("add")
    assert not cut("relu")
    assert not cut("tanh")
    assert not cut("relu", "conv2d")
    assert not cut()


@pytest.mark.parametrize(
    ("function", "elsewhere"),
    [
        (lambda x, y: (x + y,), False),
        (lambda x, y: (x + y.flatten(2).view_as(x),), False),
        (lambda x, y: (x + y, y.exp()), True),
        (lambda x, y: (x + y.flatten(2).view_as(x), y.exp()), True),
        (lambda x, y: ((z := y.flatten(2)), x + z.view_as(x), z.exp())[1:], True),
        (lambda x, y: (x + y, y.exp())[:1], False),  # leads nowhere
        (lambda x, y: ((z := y * 2), x + z, y.exp())[1:], False),  # another tensor is read
    ],
)
def test_what_else_reads_an_operand(function: Callable[..., Any], elsewhere: bool) -> None:
    graph, (total, *_) = recorded(lambda x: function(x, x.relu()))
    assert is_read_elsewhere(graph, graph.nodes[total].inputs[1], total) is elsewhere


TOKENS = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
LAYER = nn.Linear(8, 8)


@pytest.mark.parametrize(
    ("function", "query"),
    [
        (lambda q, k: (q @ k.transpose(1, 2)) @ k, True),
        (lambda q, k: (0.5 * q @ k.transpose(1, 2)).softmax(-1) @ k, True),
        (lambda q, k: nn.functional.scaled_dot_product_attention(q, k, k), True),
        (lambda q, k: (LAYER(q) @ k.transpose(1, 2)) @ k, False),
        (lambda q, k: (q @ k.transpose(1, 2)) @ k + q.relu(), False),  # and more
        (lambda q, k: q @ torch.ones(8, 8), False),  # nothing that it looks for
        (lambda q, k: q.tanh(), False),
    ],
)
def test_a_query_goes_straight_into_products_with_keys(
    function: Callable[..., Any], query: bool
) -> None:
    graph, (state, branch) = recorded(lambda x: ((q := x.tanh()), function(q, x.sigmoid())), TOKENS)
    assert is_query(graph, state, graph.between(state, branch)) is query


@pytest.mark.parametrize(
    ("function", "replaces"),
    [
        (lambda x, y: y - x, True),
        (lambda x, y: (y - x).detach(), True),
        (lambda x, y: (y - x.view(2, -1).view_as(x)).flatten(2), True),
        (lambda x, y: y[:1] - x, True),  # of another shape
        (lambda x, y: x - y, False),
        (lambda x, y: y - 2 * x, False),
        (lambda x, y: torch.sub(y, x, alpha=2), False),
        (lambda x, y: torch.add(y, x, alpha=-1), True),
        (lambda x, y: y + x, False),
        (lambda x, y: y[:1] + x, False),
        (lambda x, y: y - y.sigmoid(), False),
        (lambda x, y: y.relu(), False),
        (lambda x, y: torch.addcmul(y, x, y), False),
    ],
)
def test_what_takes_the_state_away_replaces_it(
    function: Callable[..., Any], replaces: bool
) -> None:
    graph, (state, branch) = recorded(lambda x: ((s := x.tanh()), function(s, s.sigmoid())))
    assert is_replacement(graph, state, branch) is replaces


@pytest.mark.parametrize(
    ("function", "deviation"),
    [
        (lambda x: x.exp(), True),
        (lambda x: (0.5 * x).exp(), True),
        (lambda x: x.exp().sqrt(), True),
        (lambda x: (2 * x.exp()).flatten(1), True),
        (lambda x: x.exp() * x, False),
        (lambda x: x.exp() + 1, False),
        (lambda x: x.exp().relu(), False),
        (lambda x: x.sqrt(), False),
    ],
)
def test_a_deviation_is_an_exponential(function: Callable[..., Any], deviation: bool) -> None:
    graph, (made,) = recorded(lambda x: function(x.tanh()))
    assert is_deviation(graph, made) is deviation


@pytest.mark.parametrize(
    ("function", "mixes"),
    [
        (lambda x, a: a @ x, True),
        (lambda x, a: a @ (2 * x).transpose(0, 1).transpose(0, 1), False),
        (lambda x, a: (a @ x).clone(), True),
        (lambda x, a: a @ x.clone(), True),
        (lambda x, a: x @ a, True),
        (lambda x, a: a[0, 0] @ x, False),  # one matrix for all
        (lambda x, a: a[..., :2, :] @ x, False),  # not square
        (lambda x, a: a @ a, False),  # not the state
        (lambda x, a: a @ x.sigmoid(), False),
        (lambda x, a: (x @ x.transpose(-1, -2)).softmax(-1) @ x, False),  # attention
        (lambda x, a: a * x, False),
    ],
)
def test_a_matrix_for_each_token_mixes_streams(function: Callable[..., Any], mixes: bool) -> None:
    graph, (state, branch) = recorded(lambda x: ((s := x.tanh()), function(s, s.exp())))
    assert mixes_streams(graph, state, branch) is mixes


def test_the_forms_of_a_tensor() -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        s = x.tanh()
        doubled, first, again, other = 2 * s, s[:1], s[:1], s[1:]
        left, right = s.chunk(2)
        chosen = torch.arange(3.0)[s.flatten().long().clamp(0, 2)]
        moved = 0 + doubled.flatten(1)
        return s, doubled, moved, first, again, other, left, right, s + s.relu(), chosen

    graph, made = recorded(function)
    s, doubled, moved, first, again, other, left, right, total, chosen = made
    alike = twins(graph)

    def of(index: int) -> list[int]:
        return forms(graph, alike, index)

    assert of(s) == [s]
    assert of(doubled) == [doubled, s]
    assert of(moved)[0] == moved
    assert of(moved)[-2:] == [doubled, s]
    assert len(of(moved)) == 4  # and what was flattened
    assert of(first) == [first, again, s]
    assert of(again) == [again, first, s]
    assert of(other) == [other, s]
    assert of(left) == [left]  # half of it, as the other half
    assert of(right) == [right]
    assert of(total) == [total]
    assert of(chosen) == [chosen]
    assert alike[first] == alike[again] == [first, again]
    assert alike[other] == [other]


def test_the_parts_of_what_was_put_together() -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        a, b = x[:1], x[1:]
        two = torch.cat((a, b))
        return a, b, two, two.flatten(1), torch.cat((a,)), torch.stack((a, a)), x.tanh()

    graph, (a, b, two, flat, one, stacked, other) = recorded(function)
    assert parts(graph, two) == parts(graph, flat) == (a, b)
    assert parts(graph, one) == parts(graph, stacked) == parts(graph, other) == ()


def test_what_reads_a_state_in_slices_alone() -> None:
    def path(*first: str) -> list[Node]:
        read = [Node(k + 1, operation, inputs=(0,)) for k, operation in enumerate(first)]
        return [*read, Node(9, "conv2d", inputs=(1,))]

    assert begins_with_slices(0, path("getitem"))
    assert begins_with_slices(0, path("getitem", "chunk"))
    assert not begins_with_slices(0, path("getitem", "relu"))
    assert not begins_with_slices(0, path("relu"))


@pytest.mark.parametrize(
    ("shape", "axis", "number"),
    [
        ((2, 3, 4, 5), 1, 40),
        ((2, 3, 4, 5), None, 40),
        ((2, 3, 4, 5), 3, 24),
        ((2, 5, 8), None, 10),
        ((2, 0), None, 0),
        ((), None, 1),
    ],
)
def test_places_of_a_feature_map(shape: tuple[int, ...], axis: int | None, number: int) -> None:
    assert positions(Node(0, "input", shape=shape, channel_axis=axis)) == number


def test_what_an_arm_computes() -> None:
    arm = weigh(nodes("conv2d linear batch_norm relu matmul max_pool2d opaque lstm view add erf"))
    assert arm == Arm(weight=6, length=11, layers=2, nonlinear=4, norms=1, pools=1)
    assert weigh(nodes("")) == Arm(0, 0, 0, 0, 0, 0)


ARMS = {
    "a layer beside an activation": ("conv2d", "relu", True),
    "a layer beside a layer": ("conv2d", "conv2d conv2d conv2d", False),
    "an activation beside a layer": ("relu", "conv2d", False),
    "a layout beside a layer": ("pad", "conv2d", True),
    "a layout beside a layout": ("pad", "pad", False),
    "a norm beside a layer": ("batch_norm", "conv2d", False),
    "a pool beside a layer": ("avg_pool2d", "conv2d", False),
    "a layer and its norm": ("conv2d batch_norm", "conv2d conv2d", False),
    "a layer and a pool": ("conv2d avg_pool2d", "conv2d conv2d", False),
    "a norm and a pool": ("batch_norm avg_pool2d", "conv2d conv2d", False),
    "an activated layer beside three": ("conv2d relu", "conv2d conv2d conv2d relu relu", True),
    "beside two": ("conv2d relu", "conv2d conv2d relu relu", False),
    "beside three with one activation": ("conv2d relu", "conv2d conv2d conv2d relu", False),
    "two layers beside four": (
        "conv2d conv2d relu",
        "conv2d conv2d conv2d conv2d relu relu",
        False,
    ),
    "two activations": ("conv2d relu relu", "conv2d conv2d conv2d relu relu relu", False),
    "an activation beside two layers": ("relu", "conv2d conv2d relu relu", True),
    "an activation beside one": ("relu", "conv2d relu relu", False),
}


@pytest.mark.parametrize("name", ARMS)
def test_a_shortcut_is_cheap_beside_its_branch(name: str) -> None:
    shortcut, branch, cheap = ARMS[name]
    found = Projection(0, 1, 2, nodes(shortcut), nodes(branch))
    assert found.is_cheap is cheap


@pytest.mark.parametrize(
    ("shortcut", "free"),
    [("pad view", True), ("avg_pool2d relu", True), ("conv2d", False), ("layer_norm", False)],
)
def test_a_shortcut_without_layers_and_norms_is_free(shortcut: str, free: bool) -> None:
    assert Projection(0, 1, 2, nodes(shortcut), []).is_free is free


@pytest.mark.parametrize(
    ("function", "cell"),
    [
        (lambda a, b: torch.cat((a + b, a + a, b + b)), True),
        (lambda a, b: torch.cat((a + b, a + a, b)), False),
        (lambda a, b: torch.cat((a + b, a, b, a)), False),
        (lambda a, b: torch.stack((a + b, a + a, b + b)), False),
        (lambda a, b: a + b, False),
    ],
)
def test_three_sums_side_by_side_are_a_cell(function: Callable[..., Any], cell: bool) -> None:
    graph, _ = recorded(lambda x: function(x.relu(), x.tanh()))
    first = next(node for node in graph.nodes if node.operation == "add")
    assert is_part_of_a_cell(graph, first) is cell
