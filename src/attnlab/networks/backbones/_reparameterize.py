"""Parallel linear branches, and the one convolution that they are at inference.

Convolution and BatchNorm with fixed statistics are linear, so a sum of such branches is one
convolution: fuse each norm into its kernel, pad the kernels to one size about their centre, add.
(Ding et al., ICCV 2019 and CVPR 2021.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from operator import add

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.fusion import fuse_conv_bn_weights

KERNEL = 3


def pad_kernel(kernel: Tensor, size: int = KERNEL) -> Tensor:
    """`kernel` (out, in, h, w) of odd sides in the middle of a `size` x `size` kernel of zeros."""
    rows, columns = (size - kernel.shape[2]) // 2, (size - kernel.shape[3]) // 2
    return F.pad(kernel, (columns, columns, rows, rows))


def identity_kernel(channels: int) -> Tensor:
    """The 1x1 kernel that returns its input."""
    return torch.eye(channels)[:, :, None, None]


def fuse_norm(kernel: Tensor, norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    """Kernel and bias that equal convolution with `kernel`, then `norm` in eval mode."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    return fuse_conv_bn_weights(
        kernel, None, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias
    )


def sum_kernels(fused: Iterable[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Kernel and bias of the convolution that equals the sum of the given ones."""
    kernels, biases = zip(*fused, strict=True)
    return reduce(add, map(pad_kernel, kernels)), reduce(add, biases)


class ConvolutionNorm(nn.Module):
    """A bias-free convolution (`conv`) that keeps the map centred, and BatchNorm (`bn`)."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: tuple[int, int], stride: int
    ) -> None:
        super().__init__()
        padding = (kernel_size[0] // 2, kernel_size[1] // 2)
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, stride, padding, bias=False)
        self.bn = nn.BatchNorm2d(out_channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(self.conv(x))


Branch = ConvolutionNorm | nn.BatchNorm2d


def branch_kernel(branch: nn.Module) -> tuple[Tensor, Tensor]:
    """Kernel and bias of one branch; a norm alone is the identity convolution and its norm."""
    if isinstance(branch, ConvolutionNorm):
        return fuse_norm(branch.conv.weight, branch.bn)
    assert isinstance(branch, nn.BatchNorm2d)
    return fuse_norm(identity_kernel(branch.num_features).to(branch.weight), branch)


class BranchSum(nn.Module):
    """The sum of `branches`; after `reparameterize()`, one 3x3 convolution with bias (`fused`).

    The module stays in its place, so whatever acts on its output (a gate, a hook) still does.
    `timm.utils.reparameterize_model` finds the method. The outputs are equal in eval mode; in
    training mode a norm uses the statistics of the batch and no fixed convolution equals it.
    """

    def __init__(
        self, in_channels: int, out_channels: int, stride: int, branches: Mapping[str, Branch]
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.stride = stride
        self.branches = nn.ModuleDict(dict(branches))
        self.fused: nn.Conv2d | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.fused is not None:
            return self.fused(x)
        return reduce(add, [branch(x) for branch in self.branches.values()])

    def kernel(self) -> tuple[Tensor, Tensor]:
        """Kernel and bias of the equal convolution."""
        if self.fused is not None:
            assert self.fused.bias is not None
            return self.fused.weight, self.fused.bias
        return sum_kernels(branch_kernel(branch) for branch in self.branches.values())

    @torch.no_grad()
    def reparameterize(self) -> None:
        """Replace the branches by the equal convolution; a second call changes nothing."""
        if self.fused is not None:
            return
        kernel, bias = self.kernel()
        self.fused = nn.Conv2d(
            self.in_channels,
            self.out_channels,
            KERNEL,
            self.stride,
            padding=1,
            device=kernel.device,
            dtype=kernel.dtype,
        )
        self.fused.weight, self.fused.bias = nn.Parameter(kernel), nn.Parameter(bias)
        self.fused.train(self.training)
        self.branches = nn.ModuleDict()


def reparameterize_all(network: nn.Module) -> None:
    """Reparameterize every `BranchSum` of `network` in place."""
    for module in list(network.modules()):
        if isinstance(module, BranchSum):
            module.reparameterize()
