"""Whole networks of these operators: RedNet (involution) and a ResNet of local attention."""

from __future__ import annotations

from torch import nn

from attnlab._errors import OptionError
from attnlab.evolution.involution import Involution2d
from attnlab.evolution.replace import replace

REDNET_BLOCKS = {26: (1, 2, 4, 1), 38: (2, 3, 5, 2), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}


def rednet(depth: int = 50, num_classes: int = 1000) -> nn.Module:
    """RedNet (Li et al., CVPR 2021): a bottleneck ResNet whose 3×3 convolutions are involutions.

    The stem is theirs too: convolution to half the width, a 3×3 involution, convolution.
    """
    network = _resnet(depth, num_classes)
    for name, convolution in list(network.named_modules()):
        if name.endswith(".conv2"):
            block = network.get_submodule(name.removesuffix(".conv2"))
            block.conv2 = Involution2d(convolution.in_channels, 7, stride=convolution.stride)
    network.conv1 = nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(inplace=True),
        Involution2d(32, 3),
        nn.BatchNorm2d(32),
        nn.ReLU(inplace=True),
        nn.Conv2d(32, 64, 3, padding=1, bias=False),
    )
    return network


def attention_resnet(
    depth: int = 50, num_classes: int = 1000, kernel_size: int = 7, heads: int = 8
) -> nn.Module:
    """A ResNet in which local attention with relative positions takes the place of every 3×3.

    After stand-alone self-attention (Ramachandran et al., NeurIPS 2019) with their convolutional
    stem. Strided layers attend from every second pixel (theirs attend everywhere, then pool).
    """
    network, _ = replace(
        _resnet(depth, num_classes),
        "local_attention",
        where="layer*.conv2",
        kernel_size=kernel_size,
        heads=heads,
        positional="relative",
    )
    return network


def _resnet(depth: int, num_classes: int) -> nn.Module:
    from torchvision.models.resnet import Bottleneck, ResNet

    if depth not in REDNET_BLOCKS:
        raise OptionError(
            f"Expected depth to be one of {', '.join(map(str, REDNET_BLOCKS))} but got {depth}."
        )
    return ResNet(Bottleneck, list(REDNET_BLOCKS[depth]), num_classes=num_classes)
