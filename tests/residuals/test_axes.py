"""Which axis of the source each axis of a result is, for every way to move axes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from attnlab.residuals.graph import axis_order
from attnlab.residuals.recorder import record

MOVES: list[Callable[[Tensor], Tensor]] = [
    lambda x: x.permute(0, 2, 3, 1),
    lambda x: x.permute((0, -1, 1, 2)),
    lambda x: x.permute(dims=(3, 0, 2, 1)),
    lambda x: torch.permute(input=x, dims=(3, 0, 2, 1)),
    lambda x: x.transpose(1, -1),
    lambda x: x.transpose(dim0=0, dim1=2),
    lambda x: torch.transpose(input=x, dim0=0, dim1=2),
    lambda x: x.movedim(1, -1),
    lambda x: torch.moveaxis(x, (0, 1), (2, 3)),
    lambda x: x.mT,
]


class Moves(nn.Module):
    def __init__(self, move: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.move = move

    def forward(self, x: Tensor) -> Tensor:
        return self.move(x) + 0.0


@pytest.mark.parametrize("number", range(len(MOVES)))
def test_order_is_that_of_the_sizes(number: int) -> None:
    sizes = (2, 3, 5, 7)  # all different: the sizes of the result tell where each axis came from
    graph, output = record(Moves(MOVES[number]), (torch.zeros(sizes),), {})
    assert isinstance(output, Tensor)
    moved = graph.nodes[graph.outputs[0]].inputs[0]
    order = axis_order(graph.nodes[moved], len(sizes))
    assert tuple(sizes[axis] for axis in order) == tuple(output.shape)
