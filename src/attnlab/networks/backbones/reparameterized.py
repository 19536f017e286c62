"""Parallel linear branches that become one convolution at inference: RepVGG and ACNet.

Convolution and BatchNorm with fixed statistics are linear, so a sum of such branches is one
convolution: fuse each norm into its kernel, pad the kernels to one size about their centre, add.
(Ding et al., ICCV 2019 and CVPR 2021.)

RepVGG-A0 for small images (CVPR 2021) is a stack of blocks, each the sum of a 3x3 convolution, a
1x1 convolution and, where the shape stays, the identity, each with its own norm; then ReLU. Strides
1, 1, 2, 2, 2 instead of five halvings, for 32x32 images (which variant the papers used on CIFAR is
not known). State-dict names: `stage0.branch_sum` and `stage{1..4}.{block}.branch_sum`, each with
`.branches.{dense,pointwise}.{conv,bn}` and `.branches.identity`, or `.fused` when deployed; `fc`.

In ResNets with asymmetric convolution blocks (ACNet, ICCV 2019) each 3x3 convolution with its norm,
the stem's too, becomes the sum of a 3x3, a 3x1 and a 1x3 convolution, each with its own norm. All
else is the CIFAR ResNet, also in state-dict names; but where it has a 3x3 `conv{i}` and its
`bn{i}`, they are `conv{i}.branches.{square,vertical,horizontal}.{conv,bn}`, or `conv{i}.fused` when
deployed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial, reduce
from operator import add

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.fusion import fuse_conv_bn_weights

from attnlab.networks.backbones._init import initialise
from attnlab.networks.backbones.resnet import (
    BasicBlock,
    BlockBuilder,
    Bottleneck,
    ResNet,
    blocks_per_stage,
)

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


STEM_WIDTH = 48
STAGES = ((48, 2, 1), (96, 4, 2), (192, 14, 2), (1280, 1, 2))
"""(width, blocks, stride of the first block) of the stages 1 to 4."""


class RepVGGBlock(nn.Module):
    """`ReLU(branch_sum(x))`: the output of `branch_sum` is where attention acts."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        branches: dict[str, Branch] = {
            "dense": ConvolutionNorm(in_channels, out_channels, (3, 3), stride),
            "pointwise": ConvolutionNorm(in_channels, out_channels, (1, 1), stride),
        }
        if stride == 1 and in_channels == out_channels:
            branches["identity"] = nn.BatchNorm2d(in_channels)
        self.branch_sum = BranchSum(in_channels, out_channels, stride, branches)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.branch_sum(x))


class RepVGG(nn.Module):
    """RepVGG-A0; `deploy=True` builds the inference form, one convolution per block."""

    def __init__(self, num_classes: int = 10, in_channels: int = 3, deploy: bool = False) -> None:
        super().__init__()
        self.input_size = (in_channels, 32, 32)
        self.stage0 = RepVGGBlock(in_channels, STEM_WIDTH, 1)
        channels = STEM_WIDTH
        stages = []
        for width, blocks, first_stride in STAGES:
            strides = [first_stride] + [1] * (blocks - 1)
            widths = [channels] + [width] * (blocks - 1)
            stages.append(
                nn.Sequential(
                    *(RepVGGBlock(w, width, s) for w, s in zip(widths, strides, strict=True))
                )
            )
            channels = width
        self.stage1, self.stage2, self.stage3, self.stage4 = stages
        self.fc = nn.Linear(channels, num_classes)
        initialise(self)
        if deploy:
            reparameterize_all(self)

    @property
    def attention_sites(self) -> tuple[str, ...]:
        """After the sum of the branches, before ReLU, in each block."""
        return tuple(name for name, module in self.named_modules() if isinstance(module, BranchSum))

    def forward(self, images: Tensor) -> Tensor:
        x = self.stage4(self.stage3(self.stage2(self.stage1(self.stage0(images)))))
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


GAMMA = 1 / 3
"""Initial scale of each of the three norms: the sum starts at the scale of one branch."""


def asymmetric_convolution(
    in_channels: int, out_channels: int, stride: int
) -> tuple[nn.Module, nn.Module]:
    """The three branches; their norms are inside, so the norm after them is the identity."""
    kernels = {"square": (3, 3), "vertical": (3, 1), "horizontal": (1, 3)}
    branches = {
        name: ConvolutionNorm(in_channels, out_channels, kernel_size, stride)
        for name, kernel_size in kernels.items()
    }
    return BranchSum(in_channels, out_channels, stride, branches), nn.Identity()


def basic_acnet(
    depth: int, num_classes: int = 10, in_channels: int = 3, deploy: bool = False
) -> ResNet:
    """ResNet-ACNet of depth 6n+2 with basic blocks and projection shortcuts.

    `deploy=True` builds the inference form, one convolution for the three branches.
    """
    block = partial(BasicBlock, convolution=asymmetric_convolution)
    return _acnet(block, blocks_per_stage(depth, 6), num_classes, in_channels, deploy)


def bottleneck_acnet(
    depth: int, num_classes: int = 10, in_channels: int = 3, deploy: bool = False
) -> ResNet:
    """ResNet-ACNet of depth 9n+2 with bottleneck blocks; otherwise as `basic_acnet`."""
    block = partial(Bottleneck, convolution=asymmetric_convolution)
    return _acnet(block, blocks_per_stage(depth, 9), num_classes, in_channels, deploy)


def _acnet(block: BlockBuilder, n: int, num_classes: int, in_channels: int, deploy: bool) -> ResNet:
    network = ResNet(block, n, num_classes, in_channels, asymmetric_convolution)
    for module in network.modules():
        if isinstance(module, ConvolutionNorm):
            nn.init.constant_(module.bn.weight, GAMMA)
    if deploy:
        reparameterize_all(network)
    return network
