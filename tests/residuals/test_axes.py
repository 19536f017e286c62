"""Which axis of the source each axis of a result is, and on which axis the channels are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.residuals.graph import Node, _carried, axis_order
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


class Returns(Moves):
    def forward(self, x: Tensor) -> Tensor:
        return self.move(x)


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


IMAGES, ROWS, LINE = torch.randn(2, 3, 4, 4), torch.randn(2, 6), torch.randn(2, 3, 8)
KERNELS = {n: torch.randn(5, 3, *[1] * n) for n in (1, 2, 3)}
CHANNELS: list[tuple[Callable[[Tensor], Tensor], Tensor, int | None]] = [
    (lambda x: x * 2, IMAGES, 1),
    (lambda x: x * 2, LINE, None),  # tokens or a signal: it cannot be told
    (lambda x: F.conv2d(x, KERNELS[2]), IMAGES, 1),
    (lambda x: F.conv2d(x, KERNELS[2]), IMAGES[0], 0),
    (lambda x: F.conv1d(x, KERNELS[1]), LINE, 1),
    (lambda x: F.conv3d(x, KERNELS[3]), torch.randn(2, 3, 2, 2, 2), 1),
    (
        lambda x: torch.convolution(
            x, KERNELS[2], None, [1] * 2, [0] * 2, [1] * 2, False, [0] * 2, 1
        ),
        IMAGES,
        1,
    ),
    (lambda x: F.linear(x, torch.randn(5, 6)), ROWS, 1),
    (lambda x: F.linear(x, torch.randn(5, 4)), IMAGES, 3),
    (lambda x: F.layer_norm(x, (4,)), IMAGES, 3),
    (lambda x: F.batch_norm(x, torch.zeros(6), torch.ones(6)), ROWS, 1),
    (lambda x: F.group_norm(x, 3), LINE, 1),
    (lambda x: F.instance_norm(x.permute(0, 2, 3, 1)), IMAGES, 3),  # where they were
    (lambda x: x.permute(0, 2, 3, 1), IMAGES, 3),
    (lambda x: F.linear(x, torch.randn(5, 6)).t(), ROWS, 0),
    (lambda x: F.linear(x, torch.randn(5, 4)).mT, IMAGES, 2),
    (lambda x: x.flatten(2).transpose(1, 2), IMAGES, 2),
    (lambda x: x.movedim(1, 2), IMAGES, 2),
    (lambda x: x.flatten(2) @ torch.randn(16, 3), IMAGES, None),
    (lambda x: F.scaled_dot_product_attention(x, x, x), IMAGES, None),
    (lambda x: x.mean((1, 2, 3)), IMAGES, None),
    (lambda x: F.linear(x, torch.randn(4, 4)) + x, IMAGES, 3),  # of the first operand
    (lambda x: x + F.linear(x, torch.randn(4, 4)), IMAGES, 1),
    (lambda x: x[..., :1] + F.linear(x, torch.randn(4, 4)), IMAGES, 3),  # of one of its shape
    (lambda x: torch.cat((x, x), 1), IMAGES, 1),
]


@pytest.mark.parametrize("number", range(len(CHANNELS)))
def test_the_axis_of_channels(number: int) -> None:
    function, given, axis = CHANNELS[number]
    graph, _ = record(Returns(function), (given,), {})
    assert graph.nodes[graph.outputs[0]].channel_axis == axis


def test_the_axis_of_channels_after_torchs_attention() -> None:
    attention, tokens = nn.MultiheadAttention(8, 2), torch.randn(5, 2, 8)
    graph, _ = record(attention, (tokens, tokens, tokens), {})
    assert graph.nodes[graph.outputs[0]].channel_axis == 2


@pytest.mark.parametrize(
    ("shape", "axis", "expected"),
    [
        ((2, 3, 4, 4), None, 1),
        ((2, 3, 4), None, 2),
        ((2, 3), None, 1),
        ((2, 3, 4, 5, 6), None, 4),
        ((2, 3, 4, 4), 3, 3),
        ((2, 3, 4, 4), 0, 0),
    ],
)
def test_where_channels_are_if_nothing_tells(
    shape: tuple[int, ...], axis: int | None, expected: int
) -> None:
    assert Node(0, "input", shape=shape, channel_axis=axis).channels_on == expected


@pytest.mark.parametrize(
    ("before", "axis", "after", "expected"),
    [
        ((2, 8, 4, 4), 1, (6, 8, 4, 4), 1),
        ((2, 8, 4, 4), 1, (8, 4, 4), 0),
        ((2, 3, 8), 2, (6, 8), 1),
        ((2, 8, 4, 4), 1, (2, 8, 16), 1),
        ((2, 8, 16), 1, (2, 8, 4, 4), 1),
        ((8, 8, 4, 4), 1, (8, 8, 16), 1),
        ((2, 1, 4, 4), 1, (2, 1, 1, 16), 2),
        ((2, 8, 4, 4), 1, (2, 8, 2, 2), 1),
        ((2, 8, 4, 4), 1, (2, 8), 1),
        ((8, 8, 4, 4), 1, (8, 8, 2, 2), 1),
        ((2, 8, 4, 4), 1, (2, 5, 2, 2), 1),
        ((2, 8, 4, 4), 1, (3, 5, 4, 4), 1),
        ((8, 4), 0, (6, 4), 0),
        ((8, 4), 0, (6, 5), None),
        ((2, 8, 4, 4), 1, (3, 5, 2, 2), None),
        ((2, 8, 4, 4), 1, (3, 5, 4, 2), None),
        ((2, 8, 4, 4), 1, (2, 16), None),
        ((2, 8, 4, 4), 1, (4, 4), None),
    ],
)
def test_where_channels_are_carried(
    before: tuple[int, ...], axis: int, after: tuple[int, ...], expected: int | None
) -> None:
    assert _carried(before, axis, after) == expected
