"""Fold, stiffness and stripe of whole detectors, on lists of images of different sizes."""

import pytest
import torch
from tests.detection.small import detector, images
from torch import nn
from torchvision.ops import FrozenBatchNorm2d

import attnlab
from attnlab._errors import FoldError
from attnlab.surgery.insertion import attachments

SIZES = ((96, 96), (80, 96), (96, 64))


@pytest.fixture(scope="module")
def gated():
    network, _ = attnlab.insert(detector(), "asr:se", example=(images(*SIZES),))
    with torch.no_grad():
        for _, attachment in attachments(network):
            for parameter in attachment.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.3)
    return network.eval()


def same_boxes(one, other, pictures):
    number = 0
    with torch.no_grad():
        for a, b in zip(one(pictures), other(pictures), strict=True):
            assert torch.equal(a["labels"], b["labels"])
            torch.testing.assert_close(a["boxes"], b["boxes"], atol=1e-3, rtol=0)
            torch.testing.assert_close(a["scores"], b["scores"], atol=1e-5, rtol=0)
            number += len(a["boxes"])
    assert number > 10


def test_fold_of_a_whole_detector(gated):
    pictures = images(*SIZES)
    plain, receipt = attnlab.fold(gated, example=(pictures,))
    assert receipt.float64_change < 1e-12
    assert plain.state_dict().keys() == detector().state_dict().keys()
    same_boxes(gated, plain, pictures)


def test_fold_into_frozen_norms():
    network = detector()
    for parent in list(network.backbone.modules()):
        for name, norm in list(parent.named_children()):
            if isinstance(norm, nn.BatchNorm2d):
                frozen = FrozenBatchNorm2d(norm.num_features)
                frozen.load_state_dict(norm.state_dict())
                setattr(parent, name, frozen)
    pictures = images(*SIZES)
    gated, _ = attnlab.insert(network, "asr:se", example=(pictures,))
    plain, receipt = attnlab.fold(gated, example=(pictures,))
    assert receipt.float64_change < 1e-12
    same_boxes(gated, plain, pictures)
    # Weight and bias take the gate, the statistics stay.
    for name, buffer in network.named_buffers():
        same = torch.equal(buffer, plain.get_buffer(name))
        assert same == (not name.endswith(("bn2.weight", "bn2.bias"))), name


def test_fold_of_gates_that_were_there_before_the_detector():
    pictures = images(*SIZES)
    for gate, sites in (("asr:se", 9), ("asr:se+asr:se", 9)):
        network = detector()
        network.backbone.body, _ = attnlab.insert(
            network.backbone.body, gate, example=torch.rand(1, 3, 96, 96)
        )
        plain, receipt = attnlab.fold(network, example=(pictures,))
        assert len(receipt.sites) == sites
        assert receipt.sites[0] == "backbone.body.layer1.0.bn2"
        assert plain.state_dict().keys() == detector().state_dict().keys()
        same_boxes(network, plain, pictures)


def by_hand(network, pictures):
    """NSI of every block, image by image: ‖x_{t+1} − x_t‖ / ‖x_t‖, and means of the gates."""
    rows = []
    for picture in pictures:
        seen = []
        hooks = []
        for stage in (1, 2, 3):
            for block in network.backbone.body[f"layer{stage}"]:

                def keep(_module, inputs, output, seen=seen):
                    x = inputs[0]
                    if x.shape == output.shape:
                        seen.append(float((output - x).norm() / x.norm()))

                hooks.append(block.register_forward_hook(keep))
        with torch.no_grad():
            network([picture])
        for hook in hooks:
            hook.remove()
        rows.append(seen)
    return torch.tensor(rows).mean(0).tolist()


def test_stiffness_of_images_of_different_sizes(gated):
    pictures = images(*SIZES)
    found = attnlab.stiffness(gated, [(pictures, None)], progress=False)
    assert found.inputs == 3
    assert len(found.nsi) == 9  # the sums of the pyramid are no steps
    kept = [step.mean for step in found.nsi if step.kind == "identity"]
    assert kept == pytest.approx(by_hand(gated, pictures), rel=1e-4)


def test_stripe_of_images_of_different_sizes():
    pictures = images(*SIZES)
    network, _ = attnlab.insert(detector(), "se", example=(pictures,))
    found = attnlab.stripe(network.eval(), [(pictures,)])
    assert found.images == 3
    means = []
    _, attachment = next(iter(attachments(network)))
    hook = attachment.gate.register_forward_hook(lambda _m, _i, output: means.append(output))
    with torch.no_grad():
        for picture in pictures:
            network([picture])
    hook.remove()
    values = torch.cat(means).flatten(1)
    assert found.sites[0].mean == pytest.approx(float(values.mean()), rel=1e-5)
    assert found.sites[0].image_spread == pytest.approx(
        float(values.std(0, correction=0).mean()), rel=1e-4
    )


def test_gates_of_a_network_that_was_taken_apart_are_not_folded():
    layer = attnlab.create("resnet20").layer1
    outer, _ = attnlab.insert(nn.Sequential(layer), "asr:se", example=torch.rand(1, 16, 8, 8))
    network = attnlab.create("resnet20")
    network.layer1 = outer[0]
    expected = (
        r"The gate at '0\.0' was inserted into a network that has other names now: it is found in "
        r"'layer1\.0'\. Fold that network before it is taken apart\."
    )
    with pytest.raises(FoldError, match=expected):
        attnlab.fold(network)
