"""ResNets with asymmetric convolution blocks (ACNet, Ding et al., ICCV 2019).

Each 3x3 convolution with its norm, the stem's too, becomes the sum of a 3x3, a 3x1 and a 1x3
convolution, each with its own norm. All else is the CIFAR ResNet.

State-dict names: those of the ResNet, but where it has a 3x3 `conv{i}` and its `bn{i}`,
`conv{i}.branches.{square,vertical,horizontal}.{conv,bn}`, or `conv{i}.fused` when deployed.
"""

from __future__ import annotations

from functools import partial

from torch import nn

from attnlab.networks.backbones._blocks import BasicBlock, BlockBuilder, Bottleneck
from attnlab.networks.backbones._reparameterize import (
    BranchSum,
    ConvolutionNorm,
    reparameterize_all,
)
from attnlab.networks.backbones.resnet import ResNet, blocks_per_stage

GAMMA = 1 / 3
"""Initial scale of each of the three norms: the sum starts at the scale of one branch."""


def asymmetric_convolution(
    in_channels: int, out_channels: int, stride: int
) -> tuple[nn.Module, nn.Module]:
    """The three branches; their norms are inside, so the norm behind them is the identity."""
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
