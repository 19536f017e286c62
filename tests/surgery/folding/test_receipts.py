"""What receipts of folds say: counts, gates, notes, by hand."""

from __future__ import annotations

from math import nan
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import attnlab
from attnlab.residuals.graph import Node
from attnlab.surgery.answer import Answer
from attnlab.surgery.folding._walk import described
from attnlab.surgery.folding.fold import _action, _Checked, _overspent
from attnlab.surgery.insertion import attachments

from .networks import Residual, stir, stir_gates

C = 6
IMAGES = torch.randn(2, C, 5, 5, generator=torch.Generator().manual_seed(0))
MOVED = "BatchNorm's statistics were moved with what the norms see of the data"


def places(*counts: int) -> Any:
    return [SimpleNamespace(folded=("gate",) * count) for count in counts]


@pytest.mark.parametrize(
    ("given", "fuse", "said"),
    [
        (places(1), False, "folded 1 gate of Net"),
        (places(1, 2, 0), False, "folded 3 gates of Net"),
        (places(0), False, "folded 0 gates of Net"),
        (places(1), True, "folded 1 gate of Net and fused it"),
        (places(), True, "fused Net"),
    ],
)
def test_what_was_done(given: Any, fuse: bool, said: str) -> None:
    assert _action("Net", given, fuse) == said


def test_a_cost_above_the_budget_is_said() -> None:
    assert _overspent(0.5, 0.5) == _overspent(0.25, 0.5) == _overspent(9.0, "all") == []
    for measured in (0.75, nan):
        assert _overspent(measured, 0.5) == [
            f"on the images held out the cost is {measured:.4f}, more than the budget 0.5: give "
            "more images, or a smaller budget"
        ]


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [((90, 10), (80, 0), True), ((90, 10), (84, 4), True), ((90, 10), (70, 0), False)],
)
def test_two_networks_that_differ_by_what_gates_compute(
    before: tuple[int, int], after: tuple[int, int], same: bool
) -> None:
    original = SimpleNamespace(answer=Answer(None, *before))
    checked = _Checked(original, None, {}, None, [], "", False)  # type: ignore[arg-type]
    assert checked._same_work(Answer(None, *after)) is same


@pytest.mark.parametrize(
    ("node", "said"),
    [
        (Node(0, "parameter", name="a.weight"), "the parameter 'a.weight'"),
        (Node(0, "parameter"), "a parameter"),
        (Node(0, "constant", owner="a"), "a tensor made while running"),
        (Node(0, "input", owner="a"), "the network's input"),
        (Node(0, "whole", owner="a.attnlab"), "the gate 'a.attnlab'"),
        (Node(0, "silu"), "silu"),
        (Node(0, "silu", owner="a.act"), "silu in 'a.act'"),
        (Node(0, "dropout", owner="a.drop"), "the layer 'a.drop'"),
        (Node(0, "rsqrt", owner="a.norm"), "the layer 'a.norm'"),
    ],
)
def test_operations_by_the_place_where_they_are(node: Node, said: str) -> None:
    assert described(node) == said


class Steps(nn.Module):
    """Two steps of which only the first can take a gate in a layer before it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(C, C, 1), nn.Conv2d(C, C, 1)
        self.norm, self.head = nn.BatchNorm2d(C), nn.Linear(C, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.norm(self.first(x))
        x = x + torch.sin(self.second(x))
        return self.head(x.mean((2, 3)))


def test_rows_of_a_fold() -> None:
    torch.manual_seed(0)
    network, _ = attnlab.insert(stir(Steps()).eval(), "asr:se", example=IMAGES)
    stir_gates(network)
    gates = {attachment.site.module: attachment for _, attachment in attachments(network)}
    gate = gates["norm"].constant().detach()
    _, receipt = attnlab.fold(network, example=IMAGES, partial=True)
    kept, folded = receipt.rows
    assert (kept.site, folded.site) == ("1.0:1 in the network", "norm")
    assert folded.into == ("norm.weight", "norm.bias")
    assert (folded.smallest, folded.largest) == pytest.approx(
        (float(gate.min()), float(gate.max()))
    )
    assert folded.smallest < folded.largest
    assert folded.kept == ""
    assert folded.error is not None
    assert folded.error <= 1e-12
    assert (folded.undone_by, folded.silenced, folded.spread) == ((), (), None)
    assert kept.into == ()
    assert (kept.smallest, kept.largest, kept.error) == (1.0, 1.0, None)
    assert kept.kept == "sin does not let a scaling of its input through"
    assert receipt.action == "folded 1 gate of Steps"
    assert receipt.sites == (folded.site,)
    assert not receipt.fused
    assert receipt.notes == ()
    assert receipt.parameters_added == -sum(p.numel() for p in gates["norm"].parameters())


def test_norms_that_were_moved_are_noted() -> None:
    torch.manual_seed(0)
    data = torch.randn(40, C, 5, 5)
    for norm, notes in ((nn.BatchNorm2d(C), (MOVED,)), (nn.GroupNorm(2, C), ())):
        branch = nn.Sequential(nn.Conv2d(C, C, 1), norm)
        network = stir(Residual(branch, nn.Identity(), C, axis=1)).eval()
        gated = stir_gates(attnlab.insert(network, "se", example=data[:2])[0])
        _, receipt = attnlab.fold_budget(gated, [data], "all")
        assert len(receipt.sites) == 1
        assert receipt.notes == notes


def test_what_fuse_merged_is_noted() -> None:
    torch.manual_seed(0)
    branch = nn.Sequential(nn.Conv2d(C, C, 1), nn.BatchNorm2d(C))
    network = stir(Residual(branch, nn.Identity(), C, axis=1)).eval()
    gated = stir_gates(attnlab.insert(network, "asr:se", example=IMAGES)[0])
    _, receipt = attnlab.fold(gated, example=IMAGES, fuse=True)
    assert receipt.action == "folded 1 gate of Residual and fused it"
    assert receipt.fused
    (note,) = receipt.notes
    assert note.startswith("merged ")
    _, receipt = attnlab.fold(network, example=IMAGES, fuse=True)
    assert receipt.action == "fused Residual"
    assert receipt.sites == receipt.rows == ()
