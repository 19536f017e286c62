"""Fused networks: equal in eval mode, with nothing left to merge."""

from __future__ import annotations

import pytest
import timm
import torch
import torchvision
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

import attnlab
from attnlab._errors import FoldError
from attnlab.networks.backbones.reparameterized import BranchSum

from .networks import Chain, Residual, relative, stir, stir_gates


def fused(network: nn.Module, images: torch.Tensor, spec: str | None) -> tuple[nn.Module, str]:
    """Fold and fuse in float64; check the output; return the result and the receipt's note."""
    torch.manual_seed(0)
    network = stir(network).eval().double()
    images = images.double()
    if spec is not None:
        network = stir_gates(attnlab.insert(network, spec, example=images)[0])
    fast, receipt = attnlab.fold(network, fuse=True, example=images)
    with torch.no_grad():
        assert relative(network(images), fast(images)) <= 1e-12
    assert receipt.float64_change <= 1e-12
    return fast, receipt.notes[-1]


IMAGES = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
NETWORKS = {
    # name: (build, gate, norms that must be left)
    "resnet": (lambda: attnlab.create("resnet20"), "asr:se", 0),
    "torchvision resnet": (lambda: torchvision.models.resnet18(num_classes=3), "asr:se", 0),
    "torchvision mobilenet": (lambda: torchvision.models.mobilenet_v2(num_classes=3), None, 0),
    "norm with activation": (lambda: timm.create_model("mobilenetv2_050", num_classes=3), None, 0),
    "pre-activation": (lambda: timm.create_model("test_resnet", num_classes=3), "asr:ie", 0),
    "norm in front": (lambda: nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 4, 3)), None, 0),
    "norm in front of padding": (
        lambda: nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 4, 3, padding=1)), None, 1,
    ),
    "norm in front of groups": (
        lambda: nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 6, 3, groups=3)), None, 0,
    ),
    "linear": (
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(3 * 64 * 64, 5), nn.BatchNorm1d(5)), None, 0,
    ),
    "transposed": (lambda: nn.Sequential(nn.ConvTranspose2d(3, 4, 3), nn.BatchNorm2d(4)), None, 0),
    "no affine": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, affine=False)), None, 0,
    ),
    "batch statistics": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, track_running_stats=False)),
        None,
        1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", NETWORKS)
def test_norms(kind):
    build, spec, left = NETWORKS[kind]
    network = build()
    fast, _ = fused(network, IMAGES, spec)
    assert sum(isinstance(module, _BatchNorm) for module in fast.modules()) == left
    assert not fast.training


@pytest.mark.parametrize("name", ["repvgg_a0", "resnet56_acnet"])
def test_own_branches(name):
    fast, note = fused(attnlab.create(name), IMAGES[:, :, :32, :32], "asr:ie")
    assert all(
        module.fused is not None for module in fast.modules() if isinstance(module, BranchSum)
    )
    deployed = attnlab.create(name, deploy=True)
    assert "re-parameterisable blocks" in note
    if name == "repvgg_a0":  # the inference form has no other norms
        deployed.load_state_dict(fast.state_dict(), strict=True)


def test_timm_branches():
    fast, note = fused(timm.create_model("repvgg_a0", num_classes=3), IMAGES, None)
    assert note.startswith("merged 22 re-parameterisable blocks and 0 norms")
    assert not any(isinstance(module, _BatchNorm) for module in fast.modules())


def test_timm_blocks_with_gates():
    """EfficientViT's blocks end in a convolution and a norm that merge themselves."""
    network = timm.create_model("efficientvit_m0", num_classes=3)
    images = torch.randn(1, 3, 224, 224)
    fast, _ = fused(network, images, "asr:ie")
    assert not any(isinstance(module, nn.BatchNorm2d) for module in fast.modules())


def test_layers_that_must_not_be_merged():
    """A convolution that runs twice, or whose output something else reads as well."""

    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)
            self.twice, self.other = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)

        def forward(self, x):
            x = self.conv(x)
            x = self.norm(x) + x
            return self.other(self.twice(self.twice(x)))

    fast, _ = fused(Shared(), IMAGES, None)
    assert isinstance(fast.norm, nn.BatchNorm2d)
    assert isinstance(fast.other, nn.BatchNorm2d)


def test_float32_is_rounded_once():
    torch.manual_seed(0)
    network = stir(attnlab.create("resnet20")).eval()
    fast, _ = attnlab.fold(network, fuse=True)
    exact, _ = attnlab.fold(network.double(), fuse=True)
    for name, value in fast.state_dict().items():
        assert value.dtype == torch.float32
        assert torch.equal(value, exact.state_dict()[name].float())


def test_gates_that_stay_are_not_lost():
    network = Residual(nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)), nn.Identity(), 3, 1)
    network, _ = attnlab.insert(network, "se", example=IMAGES)
    with pytest.raises(FoldError) as raised:
        attnlab.fold(network, fuse=True, partial=True, example=IMAGES)
    assert str(raised.value) == (
        "fuse=True would merge the modules that the gates which stay are attached to. Fold without "
        "fuse=True, or so that every inserted gate goes."
    )


def test_requires_grad():
    network = Chain(nn.Conv2d(3, 4, 1, bias=False), nn.BatchNorm2d(4)).eval()
    network.layer.requires_grad_(False)
    fast, _ = attnlab.fold(network, fuse=True, example=IMAGES)
    assert not fast.layer.weight.requires_grad
    assert not fast.layer.bias.requires_grad
