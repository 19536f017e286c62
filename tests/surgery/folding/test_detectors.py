"""Detectors fold with identical boxes: what they select from is compared, in float64, and sites."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torchvision.models.detection import FasterRCNN
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
from torchvision.ops import FrozenBatchNorm2d, MultiScaleRoIAlign

import attnlab
from attnlab._errors import FoldError
from attnlab.surgery.insertion import attachments

from .networks import relative, stir, stir_gates

C = 8
IMAGE = torch.rand(3, 64, 64, generator=torch.Generator().manual_seed(0))


class Block(nn.Module):
    def __init__(self, norm: type[nn.Module]) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(C, C, 3, padding=1, bias=False), norm(C)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.bn(self.conv(x)))


class Backbone(nn.Sequential):
    out_channels = C

    def __init__(self, norm: type[nn.Module]) -> None:
        super().__init__(nn.Conv2d(3, C, 7, 8, 3), Block(norm), Block(norm))


def faster_rcnn(norm: type[nn.Module] = FrozenBatchNorm2d) -> nn.Module:
    torch.manual_seed(0)
    network = FasterRCNN(
        Backbone(norm),
        min_size=64,
        max_size=64,
        rpn_anchor_generator=AnchorGenerator(((16, 32),), ((0.5, 1.0),)),
        box_roi_pool=MultiScaleRoIAlign(["0"], 3, 1),
        box_head=TwoMLPHead(C * 9, 16),
        box_predictor=FastRCNNPredictor(16, 3),
        rpn_post_nms_top_n_test=20,
    )
    return stir(network).eval()


def frozen(network: nn.Module) -> nn.Module:
    """Statistics of frozen norms off their start, too."""
    generator = torch.Generator().manual_seed(2)
    for name, buffer in network.named_buffers():
        if name.endswith(("weight", "bias")):
            buffer.copy_(1 + 0.3 * torch.randn(buffer.shape, generator=generator))
    return network


@pytest.mark.parametrize("norm", [nn.BatchNorm2d, FrozenBatchNorm2d])
def test_faster_rcnn_folds_with_identical_boxes(norm):
    plain = frozen(faster_rcnn(norm))
    gated, inserted = attnlab.insert(plain, "asr:se", example=([IMAGE],))
    assert inserted.compared.startswith(
        "in what backbone.2, rpn.head.cls_logits, rpn.head.bbox_pred returned, before anything is "
        "selected from it; the output: "
    )
    stir_gates(gated)
    folded, receipt = attnlab.fold(gated, example=([IMAGE],))
    assert [row.into for row in receipt.rows] == [
        (f"backbone.{block}.bn.weight", f"backbone.{block}.bn.bias") for block in (1, 2)
    ]
    assert receipt.float64_change is not None
    assert receipt.float64_change <= 1e-13
    assert all(row.error <= 1e-13 for row in receipt.rows)
    assert receipt.notes == ()
    assert list(folded.state_dict()) == list(plain.state_dict())
    folded, _ = attnlab.fold(gated.double(), example=([IMAGE.double()],))
    with torch.no_grad():
        (before,), (after,) = (network([IMAGE.double()]) for network in (gated, folded))
    assert len(before["boxes"]) > 5
    for name in ("boxes", "scores"):
        assert relative(before[name], after[name]) <= 1e-12
    assert torch.equal(before["labels"], after["labels"])


def test_frozen_norms_take_the_gate_by_their_buffers():
    plain = frozen(faster_rcnn()).double()
    gated, _ = attnlab.insert(plain, "asr:se", example=([IMAGE.double()],))
    stir_gates(gated)
    folded, _ = attnlab.fold(gated, example=([IMAGE.double()],))
    for name, attachment in attachments(gated):
        before = gated.get_submodule(name.rpartition(".")[0]).bn
        after = folded.get_submodule(attachment.site.module)
        gate = attachment.gate.constant()
        torch.testing.assert_close(after.weight, before.weight * gate)
        torch.testing.assert_close(after.bias, before.bias * gate)
        for statistic in ("running_mean", "running_var"):
            assert torch.equal(getattr(after, statistic), getattr(before, statistic))


def test_a_buffer_that_is_no_scale_takes_nothing():
    """A module with such buffers, but one of them trained: not a frozen norm."""

    class HalfFrozen(FrozenBatchNorm2d):
        def __init__(self, channels: int) -> None:
            super().__init__(channels)
            del self.weight
            self.weight = nn.Parameter(torch.ones(channels))

    gated, _ = attnlab.insert(faster_rcnn(HalfFrozen), "asr:se", example=([IMAGE],))
    with pytest.raises(FoldError, match="The gates of 2 of 2 sites cannot be folded"):
        attnlab.fold(gated, example=([IMAGE],))


def test_macs_of_a_detector_that_selects_the_same():
    gated, inserted = attnlab.insert(faster_rcnn(), "asr:se", example=([IMAGE],))
    _, receipt = attnlab.fold(gated, example=([IMAGE],))
    assert receipt.macs_added == -inserted.macs_added == -2 * 2 * C


def test_a_network_that_selects_otherwise_from_the_same_says_so():
    torch.manual_seed(0)

    class Selects(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(C, C, 1)

        def forward(self, x: Tensor) -> Tensor:
            x = self.last(x + self.conv(x))
            digits = (x.double() * 1e17).remainder(7.0)  # nothing but rounding
            return x[digits > 3.0]

    network = Selects()
    network.last = nn.Conv2d(C, C, 1)
    images = torch.randn(1, C, 6, 6, dtype=torch.float64)
    gated, _ = attnlab.insert(stir(network).double(), "asr:se", example=images)
    _, receipt = attnlab.fold(stir_gates(gated), example=images)
    (note,) = receipt.notes
    assert note.startswith("in float64 it selects differently from what is the same to ")
    assert note.endswith(", as it does where scores tie")
    assert receipt.float64_change <= 1e-14


@pytest.mark.parametrize("kind", ["Dictionary", "Integers", "Nothing", "Empty", "Masked"])
def test_other_outputs_fold(kind):
    from tests.surgery.insertion import outputs

    torch.manual_seed(0)
    network = stir(getattr(outputs, kind)())
    gated, _ = attnlab.insert(network, "asr:se")
    folded, receipt = attnlab.fold(stir_gates(gated))
    assert receipt.float64_change <= 1e-14
    assert receipt.max_change is not None
    images = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        gated.eval(), folded.eval()
        assert relative(gated.logits(images), folded.logits(images)) <= 1e-5


def test_nothing_to_compare_is_not_handed_out():
    """No layer but the gated one, and no output: whether the fold is right is not known."""

    class Mute(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(C, C, 1, 1))

        def forward(self, x: Tensor) -> None:
            self.seen = (x + nn.functional.conv2d(x, self.weight)).sum()

    images = torch.randn(1, C, 4, 4)
    gated, receipt = attnlab.insert(Mute(), "asr:se", example=images)
    assert receipt.max_change is None
    assert receipt.compared == "it holds no tensor, it is a NoneType"
    with pytest.raises(FoldError) as raised:
        attnlab.fold(gated, example=images)
    assert str(raised.value) == (
        "The folded network cannot be compared with the original in float64, so it is not handed "
        "out: it holds no tensor, it is a NoneType. Pass an example on which it answers: "
        "example=..."
    )


def test_a_site_that_the_example_leaves_empty():
    """Boxes that were not found reach the gate after them as a tensor without rows."""

    class Second(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.linear = nn.Conv2d(C, C, 1), nn.Linear(C, C)

        def forward(self, x: Tensor) -> Tensor:
            x = self.conv(x).flatten(2).mean(2)
            x = x[x.amax(1) > 1e6]
            return x + self.linear(x)

    images = torch.randn(1, C, 4, 4)
    gated, _ = attnlab.insert(Second(), "asr:se", example=images)
    with pytest.raises(FoldError, match=r"the example reaches it with an empty tensor, \(0, 8\)"):
        attnlab.fold(gated, example=images)


def test_constants_of_a_detector():
    """The effect of a gate is measured on what the network selects from."""
    torch.manual_seed(0)
    gated, _ = attnlab.insert(faster_rcnn(nn.BatchNorm2d), "eca", example=([IMAGE],))
    images = [torch.rand(2, 3, 64, 64) for _ in range(2)]
    _, receipt = attnlab.fold_constants(gated, images, tolerance=10.0)
    assert all(row.into and 0 < row.predicted_change < 1 for row in receipt.rows)
