"""Branches and the one convolution that equals them."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from attnlab.networks.backbones import build_backbone
from attnlab.networks.backbones.reparameterized import (
    BranchSum,
    RepVGGBlock,
    asymmetric_convolution,
    identity_kernel,
    pad_kernel,
)


def randomise_norms(network: nn.Module) -> None:
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias)
            nn.init.normal_(module.running_mean)
            nn.init.uniform_(module.running_var, 0.5, 1.5)


def relative_error(got: torch.Tensor, expected: torch.Tensor) -> float:
    return ((got - expected).norm() / expected.norm()).item()


@pytest.mark.parametrize("shape", [(1, 1), (3, 1), (1, 3), (3, 3)])
@pytest.mark.parametrize("stride", [1, 2])
def test_padded_kernel_is_the_same_convolution(shape: tuple[int, int], stride: int) -> None:
    torch.manual_seed(0)
    kernel = torch.randn(4, 3, *shape, dtype=torch.float64)
    x = torch.randn(2, 3, 8, 7, dtype=torch.float64)
    padding = (shape[0] // 2, shape[1] // 2)
    expected = F.conv2d(x, kernel, stride=stride, padding=padding)
    torch.testing.assert_close(
        F.conv2d(x, pad_kernel(kernel), stride=stride, padding=1), expected, rtol=1e-13, atol=1e-13
    )


def test_identity_kernel() -> None:
    x = torch.randn(2, 5, 4, 3)
    assert torch.equal(F.conv2d(x, identity_kernel(5)), x)


@pytest.mark.parametrize("shape", [(3, 5, 1), (3, 5, 2), (4, 4, 1), (4, 4, 2)])
def test_branch_sums(shape: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    in_channels = shape[0]
    for branch_sum in (RepVGGBlock(*shape).branch_sum, asymmetric_convolution(*shape)[0]):
        assert isinstance(branch_sum, BranchSum)
        branch_sum.kernel()  # of other weights: none of it may be kept
        randomise_norms(branch_sum)
        branch_sum.double().eval()
        x = torch.randn(2, in_channels, 9, 6, dtype=torch.float64)
        expected = sum(branch(x) for branch in branch_sum.branches.values())
        kernel, bias = branch_sum.kernel()
        assert torch.equal(branch_sum(x), expected)
        equal = F.conv2d(x, kernel, bias, stride=shape[2], padding=1)
        assert relative_error(equal, expected) <= 1e-12
        branch_sum.reparameterize()
        fused = branch_sum.fused
        assert fused is not None
        assert (fused.in_channels, fused.out_channels, fused.stride) == (
            *shape[:2],
            (shape[2],) * 2,
        )
        assert relative_error(branch_sum(x), expected) <= 1e-12


def test_branches_by_shape() -> None:
    assert list(RepVGGBlock(4, 4, 1).branch_sum.branches) == ["dense", "pointwise", "identity"]
    assert list(RepVGGBlock(4, 4, 2).branch_sum.branches) == ["dense", "pointwise"]
    assert list(RepVGGBlock(4, 5, 1).branch_sum.branches) == ["dense", "pointwise"]


@pytest.mark.parametrize("name", ["repvgg_a0", "resnet56_acnet", "resnet83_acnet"])
def test_timm_deploys_the_network(name: str) -> None:
    from timm.utils import reparameterize_model

    torch.manual_seed(0)
    network = build_backbone(name).double().eval()
    randomise_norms(network)
    x = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    with torch.no_grad():
        expected = network(x)
        deployed = reparameterize_model(network)
        assert relative_error(deployed(x), expected) <= 1e-12
        assert torch.equal(network(x), expected)
    assert all(m.fused is not None for m in deployed.modules() if isinstance(m, BranchSum))
    # A network built in deployed form takes the deployed weights.
    built = build_backbone(name, deploy=True).double().eval()
    built.load_state_dict(deployed.state_dict(), strict=True)
    with torch.no_grad():
        assert torch.equal(built(x), deployed(x))


def test_what_acts_on_the_output_survives() -> None:
    from timm.utils import reparameterize_model

    torch.manual_seed(0)
    network = build_backbone("repvgg_a0").double().eval()
    for site in network.attention_sites:
        host = network.get_submodule(site)
        host.register_forward_hook(lambda _module, _inputs, output: 0.5 * output)
    x = torch.randn(1, 3, 16, 16, dtype=torch.float64)
    with torch.no_grad():
        assert relative_error(reparameterize_model(network)(x), network(x)) <= 1e-12


def test_reparameterize_keeps_mode_dtype_and_a_second_call_changes_nothing() -> None:
    branch_sum = RepVGGBlock(4, 4, 1).branch_sum.to(torch.bfloat16).eval()
    branch_sum.reparameterize()
    first = copy.deepcopy(branch_sum.state_dict())
    branch_sum.reparameterize()
    assert list(first) == ["fused.weight", "fused.bias"]
    assert {v.dtype for v in first.values()} == {torch.bfloat16}
    assert all(torch.equal(v, first[k]) for k, v in branch_sum.state_dict().items())
    assert branch_sum.fused is not None
    assert not branch_sum.fused.training
    assert all(p.requires_grad for p in branch_sum.parameters())


def test_acnet_starts_with_a_third_in_each_branch() -> None:
    network = build_backbone("resnet56_acnet")
    for name, module in network.named_modules():
        if isinstance(module, nn.BatchNorm2d):
            expected = 1 / 3 if ".branches." in name else 1.0
            torch.testing.assert_close(module.weight, torch.full_like(module.weight, expected))


def test_names_of_a_block() -> None:
    def modules(state: dict[str, torch.Tensor], beginning: str) -> list[str]:
        return [k for k in state if k.startswith(beginning) and k.endswith(".weight")]

    acnet = build_backbone("resnet56_acnet").state_dict()
    assert modules(acnet, "layer2.0.conv1") == [
        f"layer2.0.conv1.branches.{branch}.{part}.weight"
        for branch in ("square", "vertical", "horizontal")
        for part in ("conv", "bn")
    ]
    repvgg = build_backbone("repvgg_a0")
    assert modules(repvgg.state_dict(), "stage1.0.") == [
        "stage1.0.branch_sum.branches.dense.conv.weight",
        "stage1.0.branch_sum.branches.dense.bn.weight",
        "stage1.0.branch_sum.branches.pointwise.conv.weight",
        "stage1.0.branch_sum.branches.pointwise.bn.weight",
        "stage1.0.branch_sum.branches.identity.weight",
    ]
    deployed = build_backbone("repvgg_a0", deploy=True).state_dict()
    assert modules(deployed, "stage1.0.") == ["stage1.0.branch_sum.fused.weight"]
