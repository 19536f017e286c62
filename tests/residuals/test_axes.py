"""Which axis of the source each axis of a result is, for every way to move axes; and where the
channels of a convolution are then."""

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


AFTERWARDS: dict[str, tuple[Callable[[Tensor], Tensor], int | None]] = {
    "as it is": (lambda x: x, 1),
    "means of maps": (lambda x: x.mean((2, 3)), 1),
    "a column of each map": (lambda x: x[..., 0], 1),
    "maps as rows": (lambda x: x.flatten(2), 1),
    "maps in tiles": (lambda x: x.unflatten(3, (2, 3)), 1),
    "pooled maps": (lambda x: x[:, :, ::2, ::2], 1),
    "one more axis in front": (lambda x: x.unsqueeze(0), 2),
    "one input less": (lambda x: x[:1], 1),
    "no input": (lambda x: x[0], 0),
    "channels last": (lambda x: x.permute(0, 2, 3, 1), 3),
    "tokens": (lambda x: x.permute(0, 2, 3, 1).flatten(1, 2), 2),
    "mean of tokens": (lambda x: x.permute(0, 2, 3, 1).mean((1, 2)), 1),
    "half of the tokens": (lambda x: x.permute(0, 2, 3, 1)[:, :3], 3),
    "twice the channels": (lambda x: torch.cat([x, x], 1), 1),
    "some channels": (lambda x: x[:, :3], 1),
    "some channels, last": (lambda x: x.permute(0, 2, 3, 1)[..., :3], 3),
    "some channels, first": (lambda x: x.transpose(0, 1)[:3], 0),
    "everything in one row": (lambda x: x.flatten(), None),
    "two at once": (lambda x: x.transpose(0, 1)[:3, :, :2], None),
}
"""What is done with five channels of maps of 7 x 6, and the axis that they are on then."""


@pytest.mark.parametrize("name", AFTERWARDS)
def test_the_axis_of_the_channels(name: str) -> None:
    move, axis = AFTERWARDS[name]
    network = nn.Sequential(nn.Conv2d(3, 5, 1), Moves(move))
    graph, _ = record(network, (torch.zeros(2, 3, 7, 6),), {})
    assert graph.nodes[graph.outputs[0]].channel_axis == axis
