"""Stages and steps of networks found without configuration, against their published depths."""

from __future__ import annotations

import pytest
import timm
import torch
import torchvision

import attnlab
from attnlab import _errors
from attnlab.instruments.stiffness.capture import capture
from attnlab.instruments.stiffness.conventions import nsi
from attnlab.instruments.stiffness.plan import plan_steps

# Steps per stage. Convolutional networks have one step per block (inverted residuals only where
# the shape stays), transformers and mixers two (attention or mixing, MLP).
TIMM = {
    "resnet18": [2, 2, 2, 2],
    "resnet34": [3, 4, 6, 3],
    "resnet50": [3, 4, 6, 3],
    "resnetv2_50": [3, 4, 6, 3],
    "resnext50_32x4d": [3, 4, 6, 3],
    "seresnet50": [3, 4, 6, 3],
    "ecaresnet50d": [3, 4, 6, 3],
    "res2net50_26w_4s": [3, 4, 6, 3],
    "regnetx_002": [1, 1, 4, 7],
    "regnety_002": [1, 1, 4, 7],
    "darknet53": [1, 2, 8, 8, 4],
    "cspresnet50": [3, 3, 5, 2],
    "mobilenetv2_100": [1, 2, 3, 2, 2],
    "mobilenetv3_small_100": [1, 2, 1, 2],
    "efficientnet_b0": [1, 1, 2, 2, 3],
    "convnext_atto": [2, 2, 6, 2],
    "convnextv2_atto": [2, 2, 6, 2],
    "vit_tiny_patch16_224": [2 * 12],
    "deit_tiny_patch16_224": [2 * 12],
    "swin_tiny_patch4_window7_224": [4, 4, 12, 4],
    "pvt_v2_b0": [4, 4, 4, 4],
    "cait_xxs24_224": [48, 4],
    "twins_svt_small": [5, 5, 21, 9],  # each stage has a positional convolution as one more step
    "xcit_nano_12_p16_224": [36, 4],  # three per block, then two class-attention blocks
    "poolformer_s12": [4, 4, 12, 4],
    "edgenext_xx_small": [2, 3, 7, 3],
    "mixer_s32_224": [16],
    "gmlp_ti16_224": [30],
    "resmlp_12_224": [24],
}


def steps_per_stage(found) -> list[int]:
    stages = found.stages.tolist()
    return [stages.count(stage) for stage in sorted(set(stages))]


@pytest.mark.parametrize("name", TIMM)
def test_timm(name):
    found = plan_steps(timm.create_model(name))
    assert steps_per_stage(found) == TIMM[name]
    assert found.kept.count(False) == len(TIMM[name])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("resnet18", [2, 2, 2, 2]),
        ("vit_b_32", [24]),
        ("swin_t", [4, 4, 12, 4]),
        ("convnext_tiny", [3, 3, 9, 3]),
        ("mobilenet_v2", [1, 2, 3, 2, 2]),
    ],
)
def test_torchvision(name, expected):
    assert steps_per_stage(plan_steps(torchvision.models.get_model(name))) == expected


@pytest.mark.parametrize(("name", "blocks"), [("resnet20", 3), ("resnet56", 9), ("resnet164", 18)])
def test_own(name, blocks):
    assert steps_per_stage(plan_steps(attnlab.create(name))) == [blocks] * 3


def test_description():
    assert plan_steps(attnlab.create("resnet20")).describe() == "3 stages of 3+3+3 steps"


@pytest.mark.parametrize("name", ["torchvision:vgg11", "torchvision:densenet121"])
def test_networks_without_steps_are_refused(name):
    model = attnlab.create(name)
    with pytest.raises(_errors.StepsNotFoundError) as error:
        plan_steps(model, torch.randn(1, 3, 64, 64))
    assert str(error.value) == (
        f"{type(model).__name__} has no residual step x + f(x), so it has no trajectory of states "
        f"and no stiffness: NSI compares a state with the next one of the same shape. (VGG has no "
        f"shortcut; DenseNet concatenates instead of adding.) Seen in one run on an input of shape "
        f"(1, 3, 64, 64)."
    )


def test_transformer_steps_by_hand():
    """Attention and MLP updates of a timm ViT, recomputed block by block."""
    torch.manual_seed(0)
    net = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=3).eval()
    images = torch.randn(2, 3, 32, 32)
    with capture(net) as steps, torch.no_grad():
        net(images)
        values = nsi(steps.norms, "branch")
        x = net.norm_pre(net._pos_embed(net.patch_embed(images)))
        expected = []
        for block in net.blocks:
            for norm, part in ((block.norm1, block.attn), (block.norm2, block.mlp)):
                f = part(norm(x))
                expected.append(f.flatten(1).norm(dim=1) / x.flatten(1).norm(dim=1))
                x = x + f
    torch.testing.assert_close(values, torch.stack(expected, 1), rtol=1e-4, atol=1e-6)
