"""Detectors: how they are built, and gates in their backbones."""

import re

import pytest
import torch
import torchvision
from tests.detection.small import (
    detector,
    images,
    shapes,
    some_batch,
    task_for,
    training_batch,
)
from torch import nn
from torchvision.ops import FrozenBatchNorm2d

import attnlab
from attnlab._errors import InputError, OptionError, SelectionError, UnknownNameError
from attnlab.residuals.choose import trunk
from attnlab.surgery.insertion import attachments
from attnlab.tasks._detectors import HeldBatchNorm2d, transfer

SITES = 9
"""Residual blocks of ResNet-20."""


def test_the_pyramid_sees_what_the_backbone_computes():
    network = detector()
    body = attnlab.create("resnet20").eval()
    body.conv1.stride = (2, 2)
    missing = body.load_state_dict(network.backbone.body.state_dict(), strict=False).missing_keys
    assert missing == ["fc.weight", "fc.bias"]
    seen = []
    for layer in (body.layer2, body.layer3):
        layer.register_forward_hook(lambda _module, _inputs, output: seen.append(output))
    with torch.no_grad():
        batch = torch.stack(images((96, 96), (96, 96)))
        body(batch)
        found = network.backbone.body(batch)
    assert [torch.equal(a, b) for a, b in zip(found.values(), seen, strict=True)] == [True, True]


@pytest.mark.parametrize("name", ["faster_rcnn", "retinanet", "fcos"])
def test_each_detector_trains_and_answers(name):
    data = shapes()
    task = task_for(data, detector=name)
    torch.manual_seed(0)
    network, _ = attnlab.insert(task.build("resnet20", {}), "se", example=torch.zeros(1, 3, 96, 96))
    loss = task.loss(network.train(), training_batch(data))
    assert loss.mean.item() == pytest.approx(sum(map(float, loss.parts.values())), rel=1e-6)
    loss.mean.backward()
    assert [n for n, p in network.named_parameters() if p.grad is None] == []
    assert len(list(attachments(network))) == SITES
    found = task.predict(network.eval(), some_batch(data))
    assert len(found) == 4
    assert all({"boxes", "labels", "scores"} <= set(each) for each in found)


def test_small_detectors_look_for_objects_of_the_sizes_of_small_images():
    """A sixth, seven and eleven twenty-fourths of the side; FCOS has the strides of its maps."""
    sizes = {None: ((16,), (28,), (44,)), 48: ((8,), (14,), (22,))}
    for side, anchors in sizes.items():
        options = {} if side is None else {"min_size": side}
        for name in ("faster_rcnn", "retinanet"):
            network = task_for(shapes(), detector=name, **options).build("resnet20", {})
            found = network.rpn if name == "faster_rcnn" else network
            assert found.anchor_generator.sizes == anchors
            assert found.anchor_generator.aspect_ratios == ((1.0,),) * 3
            assert network.transform.min_size == (side or 96,)
            assert network.transform.max_size == 96
    fcos = task_for(shapes(), detector="fcos").build("resnet20", {})
    assert fcos.anchor_generator.sizes == ((4,), (8,), (16,))
    assert fcos.topk_candidates == 200


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("faster_rcnn", "fasterrcnn_resnet50_fpn"),
        ("retinanet", "retinanet_resnet50_fpn_v2"),
        ("fcos", "fcos_resnet50_fpn"),
    ],
)
def test_the_pyramid_of_a_large_backbone_is_torchvisions(name, theirs):
    ours = task_for(shapes(), detector=name).build("torchvision:resnet50", {})
    with torch.device("meta"):
        other = torchvision.models.get_model(theirs, weights=None, weights_backbone=None)
    of_pyramid = [
        {k: v.shape for k, v in each.state_dict().items() if k.startswith("backbone.fpn.")}
        for each in (ours, other)
    ]
    assert of_pyramid[0]
    assert of_pyramid[0] == of_pyramid[1]


def test_parameters_of_the_small_detector():
    # 613,225, and with SE 2,373 more, as an independent construction of the same network has.
    network = detector()
    assert sum(p.numel() for p in network.parameters()) == 613_225
    _, receipt = attnlab.insert(network, "se", example=torch.zeros(1, 3, 96, 96))
    assert receipt.parameters_after == 615_598
    # Pooled features of C channels through two layers with C/16 in between, at least 1.
    pairs = [(16, 1)] * 3 + [(32, 2)] * 3 + [(64, 4)] * 3
    assert receipt.macs_after - receipt.macs_before == sum(2 * c * h for c, h in pairs)


def test_gates_go_into_the_backbone():
    network = detector()
    example = torch.zeros(1, 3, 96, 96)
    assert trunk(network) == "backbone.body"
    assert trunk(attnlab.create("resnet20")) == ""

    def gates(where):
        found, _ = attnlab.insert(network, "se", where, example=example)
        return [attachment.site.name for _, attachment in attachments(found)]

    blocks = [f"backbone.body.layer{s}.{b}" for s in (1, 2, 3) for b in (0, 1, 2)]
    assert gates(None) == gates("in:backbone.body") == gates("all") == blocks
    assert gates("stages:2") == gates("in:backbone.body stages:2") == blocks[3:6]
    assert gates("in:backbone.body.layer3") == blocks[6:]
    assert gates("in:backbone.body.layer3 blocks:1") == blocks[7:8]
    assert gates("in:backbone.body every:4") == [blocks[0], blocks[4], blocks[8]]
    assert gates("in:backbone") == blocks  # the sums of the pyramid are no residual steps
    norms = gates("in:backbone.body.layer1 norms")
    assert norms == [f"backbone.body.layer1.{b}.bn1" for b in (0, 1, 2)]
    with pytest.raises(SelectionError, match=r"there is no module 'backbone\.boby' in FasterRCNN"):
        gates("in:backbone.boby")
    with pytest.raises(SelectionError, match=r"There is no residual step in 'rpn'"):
        gates("in:rpn")
    with pytest.raises(
        SelectionError,
        match=r"expected stages:, blocks:, .*, any: or norms after",
    ):
        gates("in:backbone.body layer1.0")


def test_iebn_goes_into_the_backbone():
    network = detector()
    _, receipt = attnlab.insert(network, "iebn", example=torch.zeros(1, 3, 96, 96))
    assert receipt.sites
    assert all(site.startswith("backbone.body.") for site in receipt.sites)


def test_identity_leaves_the_boxes():
    network = detector()
    pictures = images((96, 96), (80, 96))
    for gate in ("se", "step", "eca", "sge", "asr:se"):
        gated, _ = attnlab.insert(network, gate, start="identity", example=(pictures,))
        with torch.no_grad():
            for one, other in zip(network(pictures), gated(pictures), strict=True):
                assert len(one["boxes"])
                torch.testing.assert_close(one["boxes"], other["boxes"], atol=1e-4, rtol=0)
                assert torch.equal(one["labels"], other["labels"])


def test_gates_in_frozen_blocks_are_counted():
    data = shapes()
    network = task_for(data, frozen_stages=1).build("resnet20", {})
    frozen = {n for n, p in network.named_parameters() if not p.requires_grad}
    own = {n for n, _ in network.named_parameters() if re.search(r"body\.(conv1|bn1|layer1)", n)}
    assert frozen == own
    gated, receipt = attnlab.insert(network, "se", example=torch.zeros(1, 3, 96, 96))
    assert "3 of 9 gates act in blocks that are frozen; the gates train" in receipt.notes
    task_for(data).loss(gated.train(), training_batch(data)).mean.backward()
    grads = {n for n, p in gated.named_parameters() if p.grad is not None}
    assert not grads & frozen
    assert any("layer1" in n for n in grads)


def test_held_norms_keep_their_statistics_and_train_their_weights():
    data = shapes()
    task = task_for(data, norm_eval=True)
    network = task.build("resnet20", {}).train()
    norms = [m for m in network.backbone.modules() if isinstance(m, nn.BatchNorm2d)]
    assert len(norms) == 21
    assert all(isinstance(norm, HeldBatchNorm2d) for norm in norms)
    before = norms[3].running_mean.clone()
    task.loss(network, training_batch(data)).mean.backward()
    assert torch.equal(norms[3].running_mean, before)
    assert norms[3].weight.grad.abs().sum() > 0
    # Keys are the plain network's, so that either loads the other's file.
    assert network.state_dict().keys() == detector().state_dict().keys()


def test_settings_that_hold_random_values_are_refused():
    data = shapes()
    expected = (
        "Task 'detection' has frozen_stages = 1, which holds what 'resnet20' starts with, and that "
        "is random. Give trained weights (backbone options weights = …), or set frozen_stages = 0 "
        "and norm_eval = false."
    )
    with pytest.raises(OptionError, match=re.escape(expected)):
        task_for(data, frozen_stages=1, norm_eval=True).check("resnet20", {})
    task_for(data, frozen_stages=1).check("resnet20", {"weights": "resnet20.safetensors"})


def test_what_cannot_be_built_is_said():
    data = shapes()
    with pytest.raises(UnknownNameError, match=r"Unknown detector 'yolo'\."):
        task_for(data, detector="yolo").build("resnet20", {})
    with pytest.raises(InputError, match=r"'vgg19_bn' has the parts"):
        task_for(data).build("vgg19_bn", {})
    name = "torchvision:ssdlite320_mobilenet_v3_large"
    with pytest.raises(OptionError, match=r"is a detector already"):
        task_for(data, detector="fcos").build(name, {})
    with pytest.raises(OptionError, match=r"frozen_stages is for backbones with stages"):
        task_for(data, frozen_stages=1).build(name, {})


def test_mask_rcnn_is_taken_for_its_boxes():
    data = shapes()
    task = task_for(data, min_size=64, max_size=64)
    network = task.build("torchvision:maskrcnn_resnet50_fpn", {})
    assert not network.roi_heads.has_mask()
    assert set(task.loss(network.train(), training_batch(data, 2)).parts) == {
        "classifier",
        "box_reg",
        "objectness",
        "rpn_box_reg",
    }


def test_trained_values_of_other_categories():
    # As torchvision hands out a trained detector: frozen norms, ε = 0, other categories.
    network = detector(seed=1)
    trained = detector(seed=2)
    for parent in list(trained.backbone.modules()):
        for name, norm in list(parent.named_children()):
            if isinstance(norm, nn.BatchNorm2d):
                frozen = FrozenBatchNorm2d(norm.num_features, eps=0.0)
                frozen.load_state_dict(norm.state_dict())
                setattr(parent, name, frozen)
    trained.roi_heads.box_predictor = type(trained.roi_heads.box_predictor)(128, 91)
    predictor = network.roi_heads.box_predictor.cls_score.weight.clone()
    transfer(trained, network)
    batch = torch.stack(images((96, 96), (96, 96)))
    with torch.no_grad():
        one, other = trained.backbone(batch), network.backbone(batch)
    for name in one:
        torch.testing.assert_close(one[name], other[name], atol=2e-4, rtol=1e-4)
    assert torch.equal(network.rpn.head.cls_logits.weight, trained.rpn.head.cls_logits.weight)
    assert torch.equal(network.roi_heads.box_predictor.cls_score.weight, predictor)
