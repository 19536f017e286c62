"""What every block asks in every run is found once, and never an answer of before a change."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from tests.surgery.insertion.exchanges import is_fresh
from torch import nn

import attnlab
from attnlab.surgery.insertion import attachments, remove_attachments
from attnlab.surgery.insertion._hosted import hosted_by


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(6, 6, 1), nn.BatchNorm2d(6)

    def forward(self, x):
        return x + self.norm(self.conv(x))


IMAGES = torch.randn(2, 6, 5, 5, generator=torch.Generator().manual_seed(0))


def gated(*gates: str) -> nn.Module:
    network = nn.Sequential(Block(), Block()).eval()
    for gate in gates:
        attnlab.insert(network, gate, example=IMAGES, inplace=True)
    return network


def exchange(network: nn.Module) -> None:
    network[0].norm = copy.deepcopy(network[0].norm)


def exchange_unseen(network: nn.Module) -> None:
    network[0]._modules["norm"] = nn.BatchNorm2d(6).eval()
    network(IMAGES)


def take_out(network: nn.Module) -> None:
    del network[0].norm


def give_a_forward(network: nn.Module) -> None:
    network[0].forward = network[0].forward


def trace(network: nn.Module) -> None:
    torch.fx.symbolic_trace(network)


CHANGES = (exchange, exchange_unseen, take_out, give_a_forward, trace, attnlab.remove)
GATES = (("se",), ("step",), ("se", "eca"), ("se", "step"))


@pytest.mark.parametrize(
    ("change", "gates"),
    # A gate at an addition makes its block one operation of a traced graph, so no block changes.
    [(c, gates) for c in CHANGES for gates in GATES if c is not trace or "step" not in gates],
    ids=lambda each: getattr(each, "__name__", "+".join(each) if type(each) is tuple else None),
)
def test_it_is_found_anew_after_each_change(gates, change):
    network = gated(*gates)
    assert is_fresh(network)
    change(network)
    assert is_fresh(network)


def test_one_gate_goes_the_quick_way_and_two_kinds_do_not():
    (block,) = gated("se")[:1]
    hosted = hosted_by(block)
    assert hosted.only is hosted.outputs["norm"]
    assert hosted.marks is None
    (block,) = gated("step")[:1]
    assert hosted_by(block).only is None
    assert hosted_by(block).marks is hosted_by(block).additions[0].marks is not None
    (block,) = gated("se", "step")[:1]
    assert hosted_by(block).only is None
    assert hosted_by(block).marks is None


def test_copies_have_their_own():
    network = gated("se")
    copied = copy.deepcopy(network)
    file = io.BytesIO()
    torch.save(network, file)
    file.seek(0)
    for each in (copied, torch.load(file, weights_only=False)):
        assert hosted_by(each[0]).only is each[0].norm._forward_hooks[-1]
        assert torch.equal(each(IMAGES), network(IMAGES))


def test_a_block_from_which_one_of_two_gates_went_was_not_rebuilt():
    network = gated("se", "eca")
    names = [name for name, _ in attachments(network)]
    remove_attachments(network, keep=[name for name in names if not name.endswith("_b")])
    assert len(list(attachments(network))) == len(names) / 2
    network[0].norm = copy.deepcopy(network[0].norm)  # so that the block is looked at
    network(IMAGES)
    hosted = hosted_by(network[0])
    assert not hosted.rebuilt
    assert hosted.only is hosted.outputs["norm"]
