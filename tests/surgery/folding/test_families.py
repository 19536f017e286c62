"""Networks of timm and torchvision: inserted, trained a little at random, folded, reloaded."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import timm
import torch
import torchvision
from torch import nn

import attnlab
from attnlab.residuals import Attachment

from .networks import relative, stir, stir_gates


def of_timm(name: str, **options: object) -> Callable[[], nn.Module]:
    return lambda: timm.create_model(name, num_classes=7, **options)


def torchvision_vit() -> nn.Module:
    return torchvision.models.VisionTransformer(32, 8, 2, 2, 16, 24, num_classes=7)


def torchvision_swin() -> nn.Module:
    return torchvision.models.SwinTransformer(
        [4, 4], 12, [2, 2], [2, 4], [4, 4], stochastic_depth_prob=0.2, num_classes=7
    )


def torchvision_convnext() -> nn.Module:
    from torchvision.models.convnext import CNBlockConfig

    return torchvision.models.ConvNeXt(
        [CNBlockConfig(12, 16, 2), CNBlockConfig(16, None, 2)], num_classes=7
    )


SMALL_SWIN = {"img_size": 64, "depths": (2, 2), "embed_dim": 12, "num_heads": (2, 4)}
FAMILIES: dict[str, tuple[Callable[[], nn.Module], int, int]] = {
    # name: (build, input size, steps)
    "resnet": (of_timm("resnet18"), 64, 8),
    "resnet with blur": (of_timm("resnetblur18"), 64, 8),
    "res2net": (of_timm("res2net50_14w_8s", layers=(1, 1, 1, 1)), 64, 4),
    "resnetv2, weight standardisation": (of_timm("resnetv2_18d"), 64, 8),
    "nfnet, scaled weights": (of_timm("nf_resnet26"), 64, 8),
    "regnet": (of_timm("regnetx_002"), 64, 13),
    "mobilenetv2": (of_timm("mobilenetv2_050"), 64, 10),
    "mobilenetv3": (of_timm("mobilenetv3_small_050"), 64, 7),
    "dla": (of_timm("dla46_c"), 64, 12),
    "convnext": (of_timm("convnext_atto", drop_path_rate=0.2), 64, 12),
    "edgenext": (of_timm("edgenext_xx_small"), 64, 15),
    "vit": (of_timm("vit_tiny_patch16_224", img_size=64, depth=3), 64, 6),
    "vit, layer scale": (of_timm("deit3_small_patch16_224", img_size=64, depth=2), 64, 4),
    "cait": (of_timm("cait_xxs24_224", img_size=64, depth=2), 64, 8),
    "beit": (of_timm("beit_base_patch16_224", img_size=64, depth=2, embed_dim=48), 64, 4),
    "swin": (of_timm("swin_tiny_patch4_window7_224", window_size=4, **SMALL_SWIN), 64, 8),
    "swinv2": (of_timm("swinv2_tiny_window8_256", window_size=4, **SMALL_SWIN), 64, 8),
    "poolformer": (of_timm("poolformer_s12"), 64, 24),
    "levit": (of_timm("levit_128s"), 224, 20),
    "torchvision vit": (torchvision_vit, 32, 4),
    "torchvision swin": (torchvision_swin, 32, 8),
    "torchvision convnext": (torchvision_convnext, 32, 4),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_family(family):
    build, size, steps = FAMILIES[family]
    torch.manual_seed(0)
    network = stir(build()).eval().double()
    images = torch.randn(2, 3, size, size, dtype=torch.float64)
    gated, _ = attnlab.insert(network, "asr:se", example=images)
    stir_gates(gated)
    plain, receipt = attnlab.fold(gated, example=images)

    assert len(receipt.rows) == steps
    assert all(row.into and row.error <= 1e-12 for row in receipt.rows)
    with torch.no_grad():
        before, after, original = gated(images), plain(images), network(images)
    assert relative(before, after) <= 1e-10
    assert relative(before, original) > 1e-6  # the gates did something
    assert list(plain.state_dict()) == list(network.state_dict())
    assert not any(isinstance(module, Attachment) for module in plain.modules())
    assert [type(m) for m in plain.modules()] == [type(m) for m in network.modules()]

    fresh = build().eval().double()
    fresh.load_state_dict(plain.state_dict(), strict=True)
    with torch.no_grad():
        assert torch.equal(fresh(images), after)


def test_the_papers_vit():
    """ViT-S: 24 gates into the output projections and the second layers of the MLPs."""
    torch.manual_seed(0)
    network = timm.create_model("vit_small_patch16_224", img_size=32).double().eval()
    images = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    gated, receipt = attnlab.insert(network, "asr:se", example=images)
    assert receipt.parameters_added == 461_376
    assert receipt.notes == (
        "the gates start at 0.00103 to 0.00103, so the network starts nearly without its branches, "
        "as with a layer scale: train it with Adam or AdamW; a trained network loses what it knows",
        "all hidden units of a gate start equal and stay equal for ever (layer_initial): "
        "layer_spread=0.5 lets them part and starts with the same gate, layer_initial=None starts "
        "with random layers",
    )
    spread, receipt = attnlab.insert(network, "asr:se", example=images, layer_spread=0.5)
    assert len(receipt.notes) == 1
    with torch.no_grad():  # it starts with the same gates
        assert relative(gated(images), spread(images)) <= 1e-8
    stir_gates(gated)
    plain, folded = attnlab.fold(gated, example=images)
    into = [row.into for row in folded.rows]
    parts = [f"blocks.{n}.{part}" for n in range(12) for part in ("attn.proj", "mlp.fc2")]
    assert into == [(f"{part}.weight", f"{part}.bias") for part in parts]
    with torch.no_grad():
        before, after = gated(images), plain(images)
    assert relative(before, after) <= 1e-12
    fresh = timm.create_model("vit_small_patch16_224", img_size=32).double().eval()
    fresh.load_state_dict(plain.state_dict(), strict=True)
    with torch.no_grad():
        assert torch.equal(fresh(images), after)


def test_torchvisions_vit_with_a_head_that_says_something():
    """Its head starts at zero, so that outputs are zero whatever the gates do."""
    torch.manual_seed(0)
    network = torchvision_vit().double().eval()
    assert not network.heads.head.weight.any()
    torch.nn.init.normal_(network.heads.head.weight)
    images = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    gated = stir_gates(attnlab.insert(network, "asr:se", example=images)[0])
    plain, folded = attnlab.fold(gated, example=images)
    parts = [
        f"encoder.layers.encoder_layer_{n}.{part}"
        for n in range(2)
        for part in ("self_attention.out_proj", "mlp.3")
    ]
    assert [row.into for row in folded.rows] == [(f"{p}.weight", f"{p}.bias") for p in parts]
    with torch.no_grad():
        before, after, original = gated(images), plain(images), network(images)
    assert relative(before, after) <= 1e-12
    assert relative(before, original) > 1e-2


@pytest.mark.parametrize("family", ["resnet", "convnext", "vit", "torchvision vit"])
def test_family_in_float32(family):
    build, size, _ = FAMILIES[family]
    torch.manual_seed(0)
    network = stir(build()).eval()
    images = torch.randn(2, 3, size, size)
    gated = stir_gates(attnlab.insert(network, "asr:se", example=images)[0])
    plain, receipt = attnlab.fold(gated, example=images)
    with torch.no_grad():
        assert relative(gated(images), plain(images)) <= 2e-5
    assert receipt.relative_change <= 2e-5
    assert receipt.float64_change <= 1e-12


@pytest.mark.parametrize("family", ["resnet", "mobilenetv2", "vit", "torchvision swin"])
def test_family_in_train_mode(family):
    build, size, _ = FAMILIES[family]
    torch.manual_seed(0)
    network = stir(build()).double()
    images = torch.randn(4, 3, size, size, dtype=torch.float64)
    gated = stir_gates(attnlab.insert(network, "asr:ie", example=images)[0])
    plain, _ = attnlab.fold(gated, example=images)
    outputs = []
    for each in (gated, plain):
        torch.manual_seed(5)  # the same paths and values are dropped
        outputs.append(each.train()(images).detach())
    assert relative(*outputs) <= 1e-9
