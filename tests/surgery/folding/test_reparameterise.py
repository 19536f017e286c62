"""`attnlab.fuse`: against timm's own re-parameterised networks, kernels by hand, and the network
itself in float64."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import timm
import torch
import torchvision
from timm.utils import reparameterize_model
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

import attnlab
from attnlab._errors import FoldError
from attnlab.surgery.folding._ids import Refusal
from attnlab.surgery.folding._shifted import ShiftedConvolution
from attnlab.surgery.folding.fuse_receipt import FuseReceipt

from .networks import relative, stir

IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0)).double()
LARGER = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(1)).double()


def fused(network: nn.Module, images: Tensor) -> tuple[nn.Module, FuseReceipt]:
    """Fuse in float64, with every parameter off its start; the output stays, also on other images
    than those that were looked at."""
    torch.manual_seed(0)
    network = stir(network).eval().double()
    fast, receipt = attnlab.fuse(network, example=images)
    other = torch.randn(images.shape, generator=torch.Generator().manual_seed(7)).double()
    with torch.no_grad():
        assert relative(network(other), fast(other)) <= 1e-12
    assert receipt.float64_change is not None
    assert receipt.float64_change <= 1e-12
    return fast, receipt


def kinds(network: nn.Module) -> list[type]:
    """The classes of all layers of a network."""
    return [type(m) for m in network.modules() if not any(m.children())]


def norms(network: nn.Module) -> int:
    return sum(isinstance(module, _BatchNorm) for module in network.modules())


def branch(channels: int, size: int | tuple[int, int]) -> nn.Sequential:
    sides = (size, size) if isinstance(size, int) else size
    padding = (sides[0] // 2, sides[1] // 2)
    layer = nn.Conv2d(channels, channels, sides, padding=padding, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(channels))


class Asymmetric(nn.Module):
    """ACNet's block, as one would write it."""

    def __init__(self, channels: int = 3) -> None:
        super().__init__()
        self.square = branch(channels, 3)
        self.vertical = branch(channels, (3, 1))
        self.horizontal = branch(channels, (1, 3))
        self.activation = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.square(x) + self.vertical(x) + self.horizontal(x))


class Diverse(nn.Module):
    """DBB's block: 3×3, 1×1, 1×1 then 3×3, 1×1 then average pooling, and the norm alone. The border
    is padded before the norms in between, as in the paper, or after them."""

    def __init__(self, channels: int = 3, late: int = 0, groups: int = 1) -> None:
        super().__init__()
        early = 1 - late

        def one(padding: int) -> nn.Sequential:
            layer = nn.Conv2d(channels, channels, 1, padding=padding, groups=groups, bias=False)
            return nn.Sequential(layer, nn.BatchNorm2d(channels))

        three = nn.Conv2d(channels, channels, 3, padding=late, groups=groups, bias=False)
        pool = nn.AvgPool2d(3, 1, padding=late)
        self.branches = nn.ModuleList(
            [
                branch(channels, 3),
                one(0),
                nn.Sequential(one(early), three, nn.BatchNorm2d(channels)),
                nn.Sequential(one(early), pool, nn.BatchNorm2d(channels)),
                nn.BatchNorm2d(channels),
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        return sum(each(x) for each in self.branches)  # type: ignore[return-value]


def test_asymmetric_convolutions_become_the_kernel_that_the_paper_adds_up():
    network = nn.Sequential(Asymmetric(), Asymmetric())
    fast, receipt = fused(network, IMAGES)
    assert kinds(fast) == [nn.Conv2d, nn.ReLU] * 2
    assert receipt.count("branches") == 2
    block = network[0]
    kernel = torch.zeros(3, 3, 3, 3, dtype=torch.float64)
    for layer, norm in (block.square, block.vertical, block.horizontal):
        rows, columns = ((3 - side) // 2 for side in layer.weight.shape[2:])
        scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
        kernel += F.pad(layer.weight * scale[:, None, None, None], (columns, columns, rows, rows))
    assert torch.allclose(fast[0][0].weight, kernel, rtol=0, atol=1e-14)


@pytest.mark.parametrize("groups", [1, 3])
def test_diverse_branches(groups):
    fast, receipt = fused(nn.Sequential(Diverse(groups=groups)), IMAGES)
    assert kinds(fast) == [nn.Conv2d]
    assert (receipt.norms_before, receipt.norms_after, receipt.left) == (7, 0, ())


def convolution(outputs: int, side: int, groups: int = 1, stride: int = 1) -> ShiftedConvolution:
    kernel = torch.randn(outputs, 4 // groups, side, side).double()
    bias = torch.randn(outputs).double()
    padding = (side // 2, side // 2)
    return ShiftedConvolution(kernel, bias, (stride, stride), padding, groups, shifted=True)


def applied(to: Tensor, each: ShiftedConvolution) -> Tensor:
    return F.conv2d(to, each.kernel, each.bias, each.stride, each.padding, groups=each.groups)


def test_sums_of_convolutions_are_what_they_add_up_to():
    torch.manual_seed(0)
    images = torch.randn(2, 4, 9, 8).double()
    for stride in (1, 2):
        one, other = convolution(6, 3, 1, stride), convolution(6, 1, 2, stride)
        expected = applied(images, one) + applied(images, other)
        for found in (one.plus(other), other.plus(one)):
            torch.testing.assert_close(applied(images, found), expected)


@pytest.mark.parametrize(("groups", "more"), [(1, 1), (2, 4), (4, 2), (2, 1)])
@pytest.mark.parametrize("sides", [(1, 3), (3, 1)])
def test_chains_of_convolutions_are_what_they_do_one_after_the_other(sides, groups, more):
    """One of the two has no sides; only the first may pad, which comes before any bias."""
    torch.manual_seed(0)
    images = torch.randn(2, 4, 9, 8).double()
    first, second = (convolution(4, side, g) for side, g in zip(sides, (groups, more), strict=True))
    first = replace(first, padding=(2, 1), stride=(1, 1) if sides[0] == 1 else (2, 3))
    second = replace(second, padding=(0, 0), stride=(2, 3) if sides[0] == 1 else (1, 2))
    found = first.then(second)
    torch.testing.assert_close(applied(images, found), applied(applied(images, first), second))
    assert found.groups == min(groups, more)
    assert found.sides == (3, 3)
    assert found.shifted


def test_padding_of_two_convolutions_adds_up_where_nothing_was_shifted():
    torch.manual_seed(0)
    images = torch.randn(2, 4, 9, 8).double()
    one = convolution(4, 1)
    first = replace(one, bias=torch.zeros(4).double(), padding=(1, 0), shifted=False)
    second = convolution(6, 3)
    found = first.then(second)
    assert found.padding == (2, 1)
    torch.testing.assert_close(applied(images, found), applied(applied(images, first), second))
    assert found.shifted
    assert not first.then(first).shifted
    with pytest.raises(Refusal, match="zeros are padded after a norm or a bias"):
        one.then(replace(second, padding=(0, 1)))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (convolution(4, 3), replace(convolution(4, 3), padding=(0, 0))),
        (convolution(4, 1, stride=2), replace(convolution(4, 3), padding=(0, 0))),
        (replace(convolution(4, 3), shifted=False), replace(convolution(4, 1), padding=(0, 1))),
    ],
    ids=["two with sides", "a stride before sides", "sides before padding"],
)
def test_chains_that_are_no_convolution_are_refused(first, second):
    with pytest.raises(Refusal, match=r"^two convolutions with sides above 1 follow each other$"):
        first.then(second)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_the_identity_and_a_scale_of_each_channel(axes):
    function = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[axes]
    images = torch.randn(2, 4, *[5] * axes).double()
    plain = ShiftedConvolution.identity(4, axes, images)
    assert (plain.sides, plain.padding, plain.stride) == ((1,) * axes, (0,) * axes, (1,) * axes)
    assert (plain.is_pointwise, plain.shifted, plain.macs, plain.sums) == (True, False, 0, 0)
    assert torch.equal(function(images, plain.kernel, plain.bias, groups=plain.groups), images)
    scale, shift = torch.randn(4).double(), torch.randn(4).double()
    found = plain.scaled(scale, shift).scaled(scale, shift)
    shape = (4, *[1] * axes)
    expected = (images * scale.view(shape) + shift.view(shape)) * scale.view(shape)
    torch.testing.assert_close(
        function(images, found.kernel, found.bias, groups=4), expected + shift.view(shape)
    )
    assert found.shifted


def test_what_was_merged_is_counted():
    one = replace(convolution(4, 1), macs=5, sums=1, shifted=False)
    other = replace(convolution(4, 1), macs=7, sums=2, shifted=False)
    chain, total = one.then(other), one.plus(other)
    assert (chain.macs, chain.sums, chain.shifted) == (12, 3, False)
    assert (total.macs, total.sums, total.shifted) == (12, 4, False)
    for shifted in (replace(one, shifted=True).plus(other), one.plus(replace(other, shifted=True))):
        assert shifted.shifted


def test_sums_need_one_way_to_treat_the_border():
    with pytest.raises(Refusal, match=r"^its branches treat the border differently$"):
        convolution(4, 3).plus(replace(convolution(4, 3), padding=(1, 0)))
    torch.manual_seed(0)
    images = torch.randn(2, 4, 9, 8).double()
    for sides, padding in (((3, 5), (1, 2)), ((5, 1), (2, 0))):
        kernel = torch.randn(6, 4, *sides).double()
        wide = replace(convolution(6, 3), kernel=kernel, padding=padding)
        small = convolution(6, 3, 2)
        expected = applied(images, wide) + applied(images, small)
        torch.testing.assert_close(applied(images, wide.plus(small)), expected)


@pytest.mark.parametrize("other", [convolution(4, 3, stride=2), convolution(1, 3)])
def test_sums_that_are_no_convolution_are_refused(other):
    """Of one place, maps of two strides can be added, and one channel can to any number."""
    with pytest.raises(Refusal, match="its branches have different strides"):
        convolution(4, 3).plus(other)


def test_zeros_that_are_padded_after_a_norm_are_not_a_convolution():
    fast, receipt = fused(nn.Sequential(Diverse(late=1)), IMAGES)
    assert any(type(module) is Diverse for module in fast.modules())
    assert {each.name: each.reason for each in receipt.left}["0"] == (
        "zeros are padded after a norm or a bias, so the border is different"
    )


def test_branches_that_are_cheaper_apart_stay():
    class Narrow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down, self.up = nn.Conv2d(16, 2, 1), nn.Conv2d(2, 16, 1)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.up(self.down(x))

    network = nn.Sequential(nn.Conv2d(3, 16, 1), Narrow())
    _, receipt = fused(network, IMAGES)
    (left,) = receipt.left
    assert left.name == "1"
    assert left.reason == "as one convolution it would cost more than its branches do"


@pytest.mark.parametrize(
    "name",
    ["repvgg_a0", "repvit_m0_9", pytest.param("mobileone_s0", marks=pytest.mark.slow)],  # 8 s
)
def test_timm_agrees(name):
    """In float64 timm's own merged network is an independent reference for ours."""
    network = stir(timm.create_model(name, num_classes=5)).eval().double()
    fast, receipt = attnlab.fuse(network, example=LARGER)
    with torch.no_grad():
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            theirs = reparameterize_model(copy.deepcopy(network))
        finally:
            torch.set_default_dtype(before)
        assert relative(theirs(LARGER), fast(LARGER)) <= 1e-12
    assert norms(fast) == receipt.norms_after == 0
    assert sum(p.numel() for p in fast.parameters()) == sum(p.numel() for p in theirs.parameters())


@pytest.mark.parametrize(("name", "theirs"), [("fastvit_t8", 10), ("repghostnet_050", 48)])
def test_norms_that_timm_leaves(name, theirs):
    network = timm.create_model(name, num_classes=5)
    assert norms(reparameterize_model(copy.deepcopy(network))) == theirs
    fast, receipt = fused(network, LARGER)
    assert norms(fast) == receipt.norms_after == 0
    assert not any(isinstance(m, timm.layers.LayerScale2d) for m in fast.modules())


class Forgetful(nn.Module):
    """Its method drops the norm in place of merging it, as RepViT's `replace_batchnorm` does."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.layer(x))

    def fuse(self) -> nn.Module:
        return self.layer


def test_a_method_that_is_wrong_is_not_believed():
    network = nn.Sequential(Forgetful(), nn.ReLU(), Forgetful())
    wrong = reparameterize_model(copy.deepcopy(stir(network).eval().double()))
    with torch.no_grad():
        assert relative(network(IMAGES), wrong(IMAGES)) > 1e-2
    fast, receipt = fused(network, IMAGES)
    assert [each.name for each in receipt.left] == ["0", "2"]
    assert receipt.left[0].reason.startswith("its own fuse() changes its output by ")
    assert norms(fast) == 0  # merged by us instead


def test_a_method_that_fails_or_needs_arguments():
    class Fails(Asymmetric):
        def switch_to_deploy(self) -> None:
            del self.square
            raise RuntimeError("not on this device")

    class Joins(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x

        def fuse(self, one: Tensor, other: Tensor) -> Tensor:
            return one + other

    fast, receipt = fused(nn.Sequential(Fails(), Joins()), IMAGES)
    assert receipt.count("branches") == 1
    assert norms(fast) == 0
    assert not receipt.left


def test_a_hook_is_not_lost():
    network = nn.Sequential(Asymmetric())
    network[0].register_forward_hook(lambda module, given, output: output * 2)  # noqa: ARG005
    fast, _ = fused(network, IMAGES)
    assert type(fast.get_submodule("0")) is Asymmetric
    assert norms(fast) == 0


@pytest.mark.parametrize(
    ("build", "scales"),
    [
        (lambda: timm.create_model("convnext_atto", num_classes=5), 12),
        (lambda: timm.create_model("deit3_small_patch16_224", num_classes=5, depth=2), 4),
        # Half of them go into the norm before a pooling.
        (lambda: timm.create_model("poolformer_s12", num_classes=5), 24),
    ],
)
def test_scales_go_into_the_layer_before(build, scales):
    size = 224 if scales == 4 else 32
    images = torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(2)).double()
    fast, receipt = fused(build(), images)
    assert receipt.count("scale") == scales
    assert not any(".ls" in name or "gamma" in name for name, _ in fast.named_parameters())


class ScaledRelu(nn.Module):
    """A learned number of each channel, after a relu; and no step in sight."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)
        self.gamma = nn.Parameter(torch.rand(4, 1, 1) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x).relu()
        return x if self.gamma is None else x * self.gamma


@pytest.mark.parametrize("negative", [False, True])
def test_a_scale_passes_relu_where_it_is_not_negative(negative):
    network = ScaledRelu().double()
    weight, gamma = network.conv.weight.detach().clone(), network.gamma.detach()
    if negative:
        gamma[2].neg_()
    fast, receipt = attnlab.fuse(network, example=IMAGES)
    if negative:
        assert [each.name for each in receipt.left] == ["gamma"]
        assert receipt.left[0].reason.startswith("1 of its gates are negative")
        assert torch.equal(fast.conv.weight, weight)
    else:
        assert fast.gamma is None
        torch.testing.assert_close(fast.conv.weight.detach(), weight * gamma[..., None])
    torch.testing.assert_close(fast(IMAGES), network(IMAGES))


def test_two_scales_in_a_row_both_go():
    class Twice(ScaledRelu):
        def __init__(self) -> None:
            super().__init__()
            self.delta = nn.Parameter(torch.rand(4, 1, 1) + 0.5)

        def forward(self, x: Tensor) -> Tensor:
            x = super().forward(x)
            return x if self.delta is None else x * self.delta

    network = Twice().double()
    product = network.gamma * network.delta
    fast, receipt = attnlab.fuse(network, example=IMAGES)
    assert receipt.sites == ("gamma", "delta")
    torch.testing.assert_close(fast.conv.weight, network.conv.weight * product[..., None])
    torch.testing.assert_close(fast(IMAGES), network(IMAGES))


def test_a_scale_that_the_forward_needs_stays():
    network = torchvision.models.convnext_tiny(num_classes=5)
    network.features = network.features[:2]
    network.classifier[0], network.classifier[2] = nn.Identity(), nn.Linear(96, 5)
    _, receipt = fused(network, IMAGES)
    assert {each.reason for each in receipt.left} == {
        "the forward of CNBlock multiplies by it itself"
    }


def test_gates_are_not_lost():
    network, _ = attnlab.insert(attnlab.create("resnet20"), "asr:se")
    with pytest.raises(FoldError) as raised:
        attnlab.fuse(network)
    assert str(raised.value) == (
        "ResNet has 9 inserted gates, which merging would lose. Fold them and fuse in one go: "
        "attnlab.fold(network, fuse=True)."
    )


def test_the_model_is_not_changed_and_the_receipt_is_read_again(tmp_path):
    network = stir(attnlab.create("resnet20")).eval()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    fast, receipt = attnlab.fuse(network)
    assert all(torch.equal(before[n], v) for n, v in network.state_dict().items())
    assert (receipt.norms_before, receipt.norms_after, norms(fast)) == (21, 0, 0)
    assert receipt.relative_change is not None
    assert receipt.relative_change <= 1e-5
    assert FuseReceipt.load(receipt.save(tmp_path / "fuse.json")) == receipt
    again, nothing = attnlab.fuse(fast, inplace=True)
    assert again is fast
    assert not nothing.merged
    assert nothing.notes == (
        "there is nothing to merge: no BatchNorm next to a layer, no branches, no scales",
    )


def test_fold_uses_the_same_function():
    network = stir(nn.Sequential(Asymmetric(), Diverse(), Forgetful())).eval()
    fast, _ = attnlab.fuse(network, example=IMAGES.float())
    folded, _ = attnlab.fold(network, fuse=True, example=IMAGES.float())
    one, other = fast.state_dict(), folded.state_dict()
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
