"""Networks without residual additions: their attention sites, and the same nets elsewhere."""

from __future__ import annotations

import pytest
import torch
import torchvision
from torch import Tensor, nn

from attnlab.networks.backbones import build_backbone
from attnlab.networks.backbones.mobile import HalvingUnit, ShuffleUnit

SITES = {
    "vgg19_bn": [64] * 2 + [128] * 2 + [256] * 4 + [512] * 8,
    "repvgg_a0": [48] + [48] * 2 + [96] * 4 + [192] * 14 + [1280],
    "shufflenet_v2": [58] * 4 + [116] * 8 + [232] * 4,
    "mobilenet_v1": [32, 64, 64, 128, 128, 128, 128, 256, 256, 256, 256, 512]
    + [512] * 10
    + [512, 1024, 1024, 1024],
}


@pytest.mark.parametrize("name", SITES)
def test_attention_sites(name: str) -> None:
    network = build_backbone(name).eval()
    widths: list[int] = []

    def note(_module: nn.Module, _inputs: object, output: Tensor) -> None:
        widths.append(output.shape[1])
        # A norm's output has both signs; after a ReLU it would not.
        assert output.min() < 0 < output.max()

    for site in network.attention_sites:
        network.get_submodule(site).register_forward_hook(note)
    with torch.no_grad():
        network(torch.randn(2, 3, 45, 37))
    assert widths == SITES[name]


def test_sites_of_the_papers() -> None:
    assert sum(SITES["vgg19_bn"]) == 5504
    assert [len(SITES[name]) for name in SITES] == [16, 22, 16, 26]


@pytest.mark.parametrize("name", SITES)
def test_relu_follows_each_site(name: str) -> None:
    # Outputs made negative at the last site of the features are all cut off: the classifier then
    # sees zeros, so every image gets the same logits.
    network = build_backbone(name).eval()
    images = torch.randn(2, *network.input_size)
    last = network.get_submodule(network.attention_sites[-1])
    with torch.no_grad():
        before = network(images)
        last.register_forward_hook(lambda _module, _inputs, output: -output.abs())
        after = network(images)
    assert not torch.equal(before, after)
    if name != "shufflenet_v2":
        assert torch.equal(after[0], after[1])


def test_vgg_features_are_torchvisions() -> None:
    torch.manual_seed(0)
    ours = build_backbone("vgg19_bn").eval()
    vgg = torchvision.models.vgg
    theirs = vgg.make_layers(vgg.cfgs["E"], batch_norm=True).eval()
    theirs.load_state_dict(ours.features.state_dict(), strict=True)
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(ours.features(x), theirs(x))


def fill(theirs: nn.Module, ours: nn.Module) -> None:
    """Copy our branch into torchvision's, which is the same but has no convolution biases."""
    with torch.no_grad():
        for a, b in zip(theirs.children(), ours.children(), strict=True):
            assert type(a) is type(b)
            if isinstance(b, nn.Conv2d):
                b.bias.zero_()
                a.weight.copy_(b.weight)
            else:
                a.load_state_dict(b.state_dict())


@pytest.mark.parametrize("halving", [False, True])
def test_shuffle_units_are_torchvisions(halving: bool) -> None:
    torch.manual_seed(0)
    in_channels, channels = (58, 116) if halving else (116, 116)
    ours = HalvingUnit(in_channels, channels) if halving else ShuffleUnit(channels)
    theirs = torchvision.models.shufflenetv2.InvertedResidual(
        in_channels, channels, stride=2 if halving else 1
    )
    fill(theirs.branch2, ours.residual)
    if halving:
        fill(theirs.branch1, ours.shortcut)
    x = torch.randn(2, in_channels, 9, 8, dtype=torch.float64)
    torch.testing.assert_close(ours.double()(x), theirs.double()(x), rtol=1e-12, atol=1e-12)


def test_mobilenet_is_timms_with_a_stride_of_one_in_the_stem() -> None:
    import timm

    torch.manual_seed(0)
    ours = build_backbone("mobilenet_v1").double().eval()
    theirs = timm.create_model("mobilenetv1_100", num_classes=10, act_layer=nn.ReLU).double().eval()
    theirs.conv_stem.stride = (1, 1)
    plain = [m for m in ours.modules() if isinstance(m, nn.Conv2d | nn.BatchNorm2d | nn.Linear)]
    other = [m for m in theirs.modules() if isinstance(m, nn.Conv2d | nn.BatchNorm2d | nn.Linear)]
    assert len(plain) == len(other)
    with torch.no_grad():
        for ours_layer, their_layer in zip(plain, other, strict=True):
            their_layer.weight.copy_(ours_layer.weight)
            if isinstance(ours_layer, nn.Conv2d) and ours_layer.bias is not None:
                ours_layer.bias.zero_()
            elif isinstance(ours_layer, nn.Linear):
                their_layer.bias.copy_(ours_layer.bias)
        x = torch.randn(2, 3, 32, 32, dtype=torch.float64)
        torch.testing.assert_close(ours(x), theirs(x), rtol=1e-10, atol=1e-12)


def test_repvgg_is_timms_with_other_strides() -> None:
    import timm

    torch.manual_seed(0)
    ours = build_backbone("repvgg_a0").double().eval()
    theirs = timm.create_model("repvgg_a0", num_classes=10).double().eval()
    kinds = nn.Conv2d | nn.BatchNorm2d | nn.Linear
    for stage, blocks in enumerate((theirs.stem, theirs.stages[0])):
        block = blocks if stage == 0 else blocks[0]
        for module in block.modules():
            if isinstance(module, nn.Conv2d):
                module.stride = (1, 1)
    # Stage 1 keeps its shape here, so its first block has an identity branch that timm's has not.
    theirs.stages[0][0].identity = nn.BatchNorm2d(48).double().eval()
    with torch.no_grad():
        for block, other in zip(
            [ours.stage0, *ours.stage1, *ours.stage2, *ours.stage3, *ours.stage4],
            [theirs.stem, *(b for s in theirs.stages for b in s)],
            strict=True,
        ):
            branches = block.branch_sum.branches
            other.conv_kxk.conv.weight.copy_(branches["dense"].conv.weight)
            other.conv_1x1.conv.weight.copy_(branches["pointwise"].conv.weight)
            assert ("identity" in branches) == (other.identity is not None)
        theirs.head.fc.load_state_dict(ours.fc.state_dict())
        for module in [*ours.modules(), *theirs.modules()]:
            if isinstance(module, nn.BatchNorm2d):
                module.weight.fill_(0.7)
                module.bias.fill_(0.1)
        assert sum(isinstance(m, kinds) for m in ours.modules()) == sum(
            isinstance(m, kinds) for m in theirs.modules()
        )
        x = torch.randn(2, 3, 32, 32, dtype=torch.float64)
        torch.testing.assert_close(ours(x), theirs(x), rtol=1e-10, atol=1e-12)
