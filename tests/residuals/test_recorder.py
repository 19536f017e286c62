"""What a recording says of a call does not depend on what it need not look at."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import attnlab
from attnlab.residuals.example import measure, run_once
from attnlab.residuals.recorder import _DRAW_NOTHING

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
