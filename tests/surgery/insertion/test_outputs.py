"""Networks with other outputs: what can be compared is, and the receipt says what that was."""

from __future__ import annotations

import math

import pytest
import torch
from tests.surgery.insertion import outputs
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

import attnlab
from attnlab.gates import BranchGate
from attnlab.residuals.example import run_once
from attnlab.residuals.selection import before_selection, returns_sets, work_depends_on_values
from attnlab.surgery.answer import Answer
from attnlab.surgery.change import Change, change_between

IMAGES = torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(3))
HEAD = "in what head returned, before anything is selected from it; the output: "


class Third(BranchGate):
    """A third of the branch."""

    def forward(self, branch):
        return branch.new_full((1, branch.shape[1], 1, 1), 1 / 3)

    def start_constant(self) -> float:
        return 1 / 3


def inserted(kind: type[outputs.Body], **attributes: object):
    torch.manual_seed(0)
    model = kind().eval()
    for name, value in attributes.items():
        setattr(model, name, value)
    return model, *attnlab.insert(model, Third, example=IMAGES)


def by_hand(model: outputs.Body) -> tuple[Tensor, Tensor]:
    """The logits without gates and with them, written out."""
    with torch.no_grad():
        x = y = model.stem(IMAGES)
        for block in model.blocks:
            x, y = x + block(x), y + block(y) / 3
        return model.head(x).double(), model.head(y).double()


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (outputs.Body, ""),
        (outputs.Dataclass, ""),
        (outputs.Nothing, HEAD + "it holds no tensor, it is a NoneType"),
        (outputs.Empty, HEAD + "it is empty, (0, 5, 8, 8)"),
        (outputs.NowhereFinite, ", 320 of 320 values are not finite, both times"),
    ],
)
def test_the_change_is_that_of_the_logits(kind, said):
    model, _, receipt = inserted(kind)
    before, after = by_hand(model)
    if kind is outputs.NowhereFinite:
        assert receipt.max_change is receipt.relative_change is None
        assert "not compared: 320 of 320 values are not finite, both times" in str(receipt)
        return
    change = float((before - after).abs().max())
    assert receipt.max_change == pytest.approx(change, rel=1e-5)
    assert receipt.relative_change == pytest.approx(change / float(before.abs().max()), rel=1e-5)
    assert receipt.compared == said


def test_integers_are_counted_beside_the_numbers():
    model, _, receipt = inserted(outputs.Dictionary)
    before, after = by_hand(model)
    moved = int((before.argmax(1) != after.argmax(1)).sum())
    assert moved > 0
    assert receipt.compared == f"{moved} of 64 integers of output['classes'] differ"
    assert receipt.max_change == pytest.approx(float((before - after).abs().max()), rel=1e-5)


def test_what_integers_were_chosen_from_is_compared():
    model, _, receipt = inserted(outputs.Integers)
    before, after = by_hand(model)
    moved = int((before.argmax(1) != after.argmax(1)).sum())
    assert receipt.max_change == pytest.approx(float((before - after).abs().max()), rel=1e-5)
    assert receipt.compared == (
        f"{HEAD}it has integers only; {moved} of 64 integers of the output differ"
    )


def test_values_that_are_not_finite_are_left_out():
    model, _, receipt = inserted(outputs.Masked)
    before, after = by_hand(model)
    rest = torch.ones(5, 8, 8, dtype=torch.bool)
    rest[0], rest[1, 0] = False, False
    change = float((before - after)[0][rest].abs().max())
    assert receipt.max_change == pytest.approx(change, rel=1e-5)
    assert receipt.compared == "72 of 320 values are not finite, both times"


def test_a_list_of_another_length():
    model, *_ = inserted(outputs.Body)
    before, after = by_hand(model)
    most = [float(logits.abs().max()) for logits in (before, after)]
    assert most[0] > most[1]
    _, _, receipt = inserted(outputs.Longer, least=sum(most) / 2)
    assert receipt.max_change == pytest.approx(float((before - after).abs().max()), rel=1e-5)
    assert receipt.compared == "output[1] is (1, 5, 8, 8) before and nothing after"


def test_a_detector_is_compared_before_it_selects():
    model, network, receipt = inserted(outputs.Detector, threshold=0.6)
    before, after = by_hand(model)
    assert receipt.max_change == pytest.approx(float((before - after).abs().max()), rel=1e-5)
    shapes = [tuple(each(IMAGES)[0]["boxes"].shape) for each in (model, network)]
    assert shapes[0] != shapes[1]
    assert receipt.compared.startswith(
        f"{HEAD}output[0]['boxes'] is {shapes[0]} before and {shapes[1]} after; output[0]['scores']"
    )


def test_a_detector_that_finds_nothing():
    """It is not said to be on the meta device, though nothing is compared either."""
    model, _, receipt = inserted(outputs.Detector, threshold=2.0)
    before, after = by_hand(model)
    assert receipt.max_change == pytest.approx(float((before - after).abs().max()), rel=1e-5)
    assert receipt.compared == f"{HEAD}it is empty, (0, 4)"


def test_meta():
    _, receipt = attnlab.insert(outputs.Body().to("meta"), "se")
    assert receipt.max_change is None
    assert "  output      not compared: the network is on the meta device" in str(receipt)


@pytest.mark.parametrize(
    ("kind", "sets", "work"),
    [
        (outputs.Detector, True, True),
        (outputs.Integers, False, False),
        (outputs.Body, False, False),
    ],
)
def test_what_a_run_selects(kind, sets, work):
    graph = run_once(kind().eval(), IMAGES).graph
    assert returns_sets(graph) == sets
    assert work_depends_on_values(graph) == work
    if kind is not outputs.Body:
        assert before_selection(graph) == (("head", 0),)


def test_what_inputs_alone_select_is_no_selection():
    """Padding that is left out is the same with gates and without."""

    class Padded(outputs.Body):
        def forward(self, x):
            return self.logits(x[x.flatten(1).amax(1) > 0])

    graph = run_once(Padded().eval(), IMAGES).graph
    assert not returns_sets(graph)
    assert not work_depends_on_values(graph)


def test_macs_of_a_detector_are_those_of_its_first_boxes_and_the_gates():
    torch.manual_seed(0)
    model = outputs.Detector().eval()
    network, receipt = attnlab.insert(model, "se", example=IMAGES)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(IMAGES)
    assert receipt.macs_before == counter.get_total_flops() // 2
    assert receipt.macs_added == 2 * (8 * 1 + 1 * 8)
    # Measured one after the other, the boxes that are gone would count as the gates' work.
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(IMAGES)
    assert counter.get_total_flops() // 2 != receipt.macs_after


def test_macs_of_fused_attention():
    """torchvision's ViT in eval mode runs a fused layer, which torch has no formula for."""
    from torchvision.models import VisionTransformer

    tokens, width, mlp, layers = 17, 16, 24, 2
    model = VisionTransformer(32, 8, layers, 2, width, mlp, num_classes=7).eval()
    _, receipt = attnlab.insert(model, "ie", example=torch.randn(1, 3, 32, 32))
    projections = 4 * tokens * width * width
    products = 2 * tokens * tokens * width
    layer = projections + products + 2 * tokens * width * mlp
    assert receipt.macs_before == 3 * 64 * width * 16 + layers * layer + width * 7
    assert receipt.macs_added == 0  # a factor and a shift per channel
    assert torch.backends.mha.get_fastpath_enabled()


def test_fused_attention_is_on_again_after_a_gate_that_raised():
    class Raises(BranchGate):
        def forward(self, branch):  # noqa: ARG002
            raise RuntimeError("as a user's own gate may")

        def start_constant(self, value):
            return value

    with pytest.raises(Exception, match="as a user's own gate may"):
        attnlab.insert(attnlab.create("resnet20"), Raises)
    assert torch.backends.mha.get_fastpath_enabled()


INF, NAN = math.inf, math.nan


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        ([1.0, -4.0], [1.5, -4.0], Change(0.5, 0.125, "", 0.125)),
        ([0.0], [0.0], Change(0.0, 0.0, "", 0.0)),
        (
            [1.0, NAN],
            [1.0, 2.0],
            Change(INF, INF, "1 of 2 values are not finite, at other places than before", INF),
        ),
        (
            [1.0, INF],
            [1.0, -INF],
            Change(INF, INF, "1 of 2 values are not finite, at other places than before", INF),
        ),
        (
            [2.0, INF, NAN, -INF],
            [3.0, INF, NAN, -INF],
            Change(1.0, 0.5, "3 of 4 values are not finite, both times", 0.5),
        ),
        ([NAN], [NAN], Change(None, None, "1 of 1 values are not finite, both times")),
        ([], [], Change(None, None, "it is empty, (0)")),
        ([1.0], [1.0, 2.0], Change(None, None, "the output is (1) before and (2) after", INF)),
    ],
)
def test_change_of_a_tensor(before, after, change):
    assert change_between(*(Answer(torch.tensor(x), 0) for x in (before, after))) == change


def test_change_of_complex_numbers():
    before, after = (Answer(torch.tensor([x]), 0) for x in (3 + 4j, 3 + 2j))
    assert change_between(before, after) == Change(2.0, 0.5, "", 0.5)


def test_what_was_seen_has_other_shapes():
    before = Answer(None, 0, 0, {("head", 0): torch.ones(2)})
    after = Answer(None, 0, 0, {("head", 0): torch.ones(3)})
    assert change_between(before, after).compared == (
        "what head returned has other shapes than before; the output: it holds no tensor, it is a "
        "NoneType"
    )


def test_gates_are_told_apart_in_the_work_of_a_network():
    from attnlab.surgery.answer import answer

    model = outputs.Body().eval()
    gated, _ = attnlab.insert(model, "se+iebn", example=IMAGES)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(IMAGES)
    found = answer(gated, IMAGES)
    assert found.macs - found.gate_macs == counter.get_total_flops() // 2
    assert found.gate_macs == 2 * (8 * 1 + 1 * 8)
    assert not any(module._forward_pre_hooks for module in gated.modules())


@pytest.mark.parametrize(
    ("number", "named"),
    [(3, "a, b, c"), (4, "a, b, c and 1 more"), (5, "a, b, c and 2 more")],
)
def test_of_many_calls_three_are_named(number, named):
    before, after = (
        Answer(None, 0, 0, {(name, 0): torch.ones(size) for name in "abcde"[:number]})
        for size in (2, 3)
    )
    assert change_between(before, after).compared.startswith(f"what {named} returned has other")
