"""What a recording says of a call does not depend on what it need not look at."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import attnlab
from attnlab.residuals.example import measure, run_once
from attnlab.residuals.graph import Graph, Ref
from attnlab.residuals.recorder import _DRAW_NOTHING, RecordedWhole, record

ROW, MAP = torch.ones(2, 4), torch.ones(2, 4, 6, 6)
SUM, PRODUCT = (ROW, ROW), (torch.ones(4, 4), torch.ones(4, 4))
CALLS = {
    torch.conv1d: (torch.ones(2, 4, 6), torch.ones(4, 4, 3)),
    torch.conv2d: (MAP, torch.ones(4, 4, 3, 3)),
    torch.conv3d: (torch.ones(2, 4, 6, 6, 6), torch.ones(4, 4, 3, 3, 3)),
    F.linear: (ROW, torch.ones(3, 4)),
    F.batch_norm: (MAP, torch.zeros(4), torch.ones(4), None, None, True),
    F.layer_norm: (ROW, (4,)),
    F.group_norm: (MAP, 2),
    F.max_pool2d: (MAP, 2),
    F.avg_pool2d: (MAP, 2),
    F.adaptive_avg_pool2d: (MAP, 1),
    torch.matmul: PRODUCT,
    Tensor.__matmul__: PRODUCT,
    Tensor.mul: SUM,
    Tensor.__mul__: SUM,
    Tensor.view: (ROW, 8),
    Tensor.reshape: (ROW, 8),
    Tensor.transpose: (ROW, 0, 1),
    Tensor.permute: (ROW, 1, 0),
}


UNARY = {F.relu, F.gelu, F.silu, F.hardswish, torch.sigmoid, torch.flatten}


def _name(function) -> str:
    return f"{getattr(function, '__module__', '')}.{function.__qualname__}"


@pytest.mark.parametrize("function", sorted(_DRAW_NOTHING, key=_name), ids=_name)
def test_these_draw_nothing(function):
    given = CALLS.get(function, (MAP,) if function in UNARY else SUM)
    given = [each.clone() if isinstance(each, Tensor) else each for each in given]
    before = torch.get_rng_state()
    function(*given)
    assert torch.equal(torch.get_rng_state(), before)


class Noisy(nn.Module):
    """Noise by a function whose name says nothing, between calls that draw nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(4, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.layer(x) + torch.empty_like(x).exponential_())


def test_what_draws_is_known_between_calls_that_do_not():
    graph = run_once(Noisy(), MAP).graph
    assert [node.operation for node in graph.nodes if node.random] == ["exponential"]


def test_inside_of_a_gate_nothing_is_told_apart():
    """What a gate computes is one node; its modules are counted all the same."""
    network, _ = attnlab.insert(attnlab.create("resnet20"), "se")
    run = run_once(network)
    gates = {name for name, _ in network.named_modules() if ".gate" in name}
    wholes = {node.owner for node in run.graph.nodes if node.operation == "whole"}
    assert len(wholes) == 9
    assert not any(node.owner in gates for node in run.graph.nodes)
    assert gates <= {name for name, calls in run.graph.calls.items() if calls == 1}
    plain = measure(attnlab.create("resnet20"))[1]
    assert run.macs - run.gate_macs == plain


class Calls(nn.Module):
    """A function of a module with a layer, a buffer and an activation."""

    def __init__(self, function) -> None:
        super().__init__()
        self.layer, self.act = nn.Linear(4, 4), nn.Tanh()
        self.register_buffer("table", torch.ones(4))
        self.function = function

    def forward(self, *given, **named):
        return self.function(self, *given, **named)


def recorded(function, *given: object, **named: object) -> tuple[Graph, list[int]]:
    """The graph of a function, and the nodes of what it returned."""
    graph, _ = record(Calls(function), given or (ROW.clone(),), named)
    return graph, list(graph.outputs)


def test_a_cast_that_changes_nothing_is_a_value_of_its_own():
    graph, (x, cast, dropped, written) = recorded(
        lambda _, x: (x, x.float(), F.dropout(x, training=False), (x * 2).relu_())
    )
    assert len({x, cast, dropped, written}) == 4
    assert graph.nodes[cast].inputs == graph.nodes[dropped].inputs == (x,)
    assert (graph.nodes[cast].operation, graph.nodes[dropped].operation) == ("float", "dropout")
    assert graph.nodes[written].in_place
    assert not graph.nodes[cast].in_place


def test_what_is_written_into_a_view_is_in_the_whole():
    def function(_, x):
        whole, other = x * 2, x.exp()
        whole[:, 1].add_(1.0)
        whole[0] = other[0]
        return whole, other, x * 3

    graph, (whole, other, apart) = recorded(function)
    made = [graph.nodes[index].operation for index in graph.nodes[whole].inputs]
    assert "write_view" in made
    assert graph.computed_from(whole, other)
    assert not graph.computed_from(apart, other)
    written = next(node for node in graph.nodes if node.operation == "write_view")
    assert [graph.nodes[index].operation for index in written.inputs] == ["mul", "add"]


def test_each_of_several_results_has_its_place():
    graph, found = recorded(lambda _, x: x.chunk(2, 1))
    assert [graph.nodes[index].place for index in found] == [0, 1]
    (call,) = {graph.nodes[index].inputs for index in found}
    assert graph.nodes[call[0]].operation == "chunk"
    assert [graph.nodes[index].arguments for index in found] == [
        (Ref(call[0]), 0),
        (Ref(call[0]), 1),
    ]


def test_what_a_module_does_that_torch_calls_do_not_show_is_one_node():
    class Hidden(nn.Module):
        def forward(self, x, y):
            with torch._C.DisableTorchFunction():
                return {"made": [x + y, x * y]}, None

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hidden = Hidden()

        def forward(self, x):
            first, second = x.exp(), x.cos()
            made = self.hidden(first, second)[0]["made"]
            return first, second, *made

    graph, _ = record(Network(), (ROW,), {})
    first, second, one, other = graph.outputs
    for index in (one, other):
        node = graph.nodes[index]
        assert (node.operation, node.owner, node.call) == ("opaque", "hidden", 0)
        assert node.inputs == (first, second)
        assert node.inside == (("", 0), ("hidden", 0))


def test_calls_of_modules_and_where_they_were_made():
    """A module that raised is left with the module that tried it."""

    class Fails(nn.Module):
        def forward(self, x):
            raise ValueError(x.exp())

    class Tries(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fails, self.layer = Fails(), nn.Sequential(nn.Tanh())

        def forward(self, x):
            try:
                return self.fails(x)
            except ValueError:
                return self.layer(x)

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tries = Tries()

        def forward(self, x):
            return self.tries(self.tries(x)).cos()

    graph, _ = record(Network(), (ROW,), {})
    assert graph.calls == dict.fromkeys(
        ("tries", "tries.fails", "tries.layer", "tries.layer.0"), 2
    ) | {"": 1}
    made = {(n.operation, n.owner, n.call): n for n in graph.nodes}
    assert list(made) == [
        ("input", "", 0),
        ("exp", "tries.fails", 0),
        ("tanh", "tries.layer.0", 0),
        ("exp", "tries.fails", 1),
        ("tanh", "tries.layer.0", 1),
        ("cos", "", 0),
    ]
    last = made["tanh", "tries.layer.0", 1]
    assert last.produced_by == [("tries.layer.0", 1), ("tries.layer", 1), ("tries", 1)]
    assert last.inside[:2] == (("", 0), ("tries", 1))
    assert last.inside[-2:] == (("tries.layer", 1), ("tries.layer.0", 1))
    assert made["cos", "", 0].inside == (("", 0),)
    assert graph.given["tries", 1] == made["tanh", "tries.layer.0", 0].index
    assert graph.given["", 0] == made["input", "", 0].index


def test_arguments_wherever_they_lie():
    def function(m, x, pair, *, more):
        joined = torch.cat([x, pair[0]], dim=1)
        chosen = x[pair[1], :2]
        return joined, chosen, F.linear(more["y"], weight=m.layer.weight), m.table * x

    pair, more = (ROW.clone(), torch.tensor([0, 1])), {"y": ROW.clone()}
    graph, (joined, chosen, linear, product) = recorded(function, ROW.clone(), pair, more=more)
    inputs = [node.index for node in graph.nodes if node.operation == "input"]
    assert inputs == [0, 1, 2, 3]
    assert [graph.nodes[index].floating for index in inputs] == [True, True, False, True]
    assert graph.nodes[joined].arguments == ([Ref(0), Ref(1)],)
    assert graph.nodes[joined].keywords == {"dim": 1}
    assert graph.nodes[joined].inputs == (0, 1)
    assert graph.nodes[chosen].arguments == (Ref(0), (Ref(2), slice(None, 2)))
    assert graph.nodes[chosen].inputs == (0, 2)
    weight = graph.nodes[linear].keywords["weight"].index
    assert graph.nodes[linear].inputs == (3, weight)
    assert (graph.nodes[weight].operation, graph.nodes[weight].name) == (
        "parameter",
        "layer.weight",
    )
    table, _ = graph.nodes[product].inputs
    assert (graph.nodes[table].operation, graph.nodes[table].name) == ("parameter", "table")
    assert not graph.nodes[table].data
    for index in (joined, chosen, linear, product):
        again = graph.nodes[index].replayed(
            lambda ref: {0: ROW, 1: pair[0], 2: pair[1], 3: ROW}.get(
                ref.index, torch.ones(4, 4) if ref.index == weight else torch.ones(4)
            )
        )
        assert again.shape == graph.nodes[index].shape


def test_tensors_that_nobody_stored():
    graph, (constant, complex_, place) = recorded(
        lambda _, x: (
            x + torch.ones(4),
            torch.complex(x, x) * 2,
            x.argmax(1),
        )
    )
    assert graph.nodes[graph.nodes[constant].inputs[1]].operation != "parameter"
    assert not graph.nodes[graph.nodes[constant].inputs[1]].data
    assert graph.nodes[complex_].floating
    assert not graph.nodes[place].floating


def test_where_an_addition_is_written():
    graph, (total,) = recorded(lambda _, x: x + x.exp())
    node = graph.nodes[total]
    assert node.adds_same_shapes
    assert node.source.startswith("test_recorder.py:")
    assert node.statement == "graph, (total,) = recorded(lambda _, x: x + x.exp())"
    assert graph.sums == [node]


class Whole(RecordedWhole):
    """Two layers and an addition that are one node."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x, other):
        return self.one(x) + self.two(other)


def test_a_whole_is_computed_from_the_first_that_it_is_given():
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.whole, self.after = Whole(), nn.Linear(4, 4)

        def forward(self, x):
            return self.after(self.whole(self.whole(x, x.exp()), x.cos()))

    run = run_once(Network(), ROW)
    wholes = [node for node in run.graph.nodes if node.operation == "whole"]
    assert [(node.owner, node.call) for node in wholes] == [("whole", 0), ("whole", 1)]
    assert wholes[1].inputs == (wholes[0].index,)
    assert run.graph.nodes[wholes[0].inputs[0]].operation == "input"
    assert run.graph.calls == {"": 1, "whole": 2, "whole.one": 2, "whole.two": 2, "after": 1}
    assert (run.gate_macs, run.macs) == (4 * 2 * 16, 5 * 2 * 16)
    assert not run.graph.sums
