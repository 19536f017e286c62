"""Paths through a recorded run, against those found by walking back from every node."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from attnlab.residuals.graph import Graph
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
