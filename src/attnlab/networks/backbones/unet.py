"""A small U-Net of residual blocks: images to one map per class.

Ronneberger et al. (MICCAI 2015) with the residual blocks of Zhang et al.'s ResUNet (2018), so that
encoder and decoder take steps: every level is a ResNet's basic block, the encoder halves the map by
a stride, the decoder enlarges it to the size of the encoder's map, whatever that is, puts the two
beside each other (a concatenation, which is not a step) and goes on with a block.

State-dict names: `stem.{0,1}`, `encoder.{level}.{block}` and `decoder.{level}.{block}` with the
names of a ResNet's basic block, `head`.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab._errors import InputError, OptionError
from attnlab.networks.backbones._init import initialise
from attnlab.networks.backbones.resnet import BasicBlock, convolution3x3


class UNet(nn.Module):
    """Normalised images → logits (N, classes, H, W), of the same height and width.

    Args:
        num_classes: of each pixel, the background included.
        width: channels of the first level; each level below has twice as many.
        levels: how many times the map is halved.
        blocks: residual blocks of each level, in the encoder and in the decoder. With three, a
            stage has the two steps after its first that its stiffness needs.
        in_channels: of the images.
    """

    def __init__(
        self,
        num_classes: int = 10,
        width: int = 16,
        levels: int = 3,
        blocks: int = 3,
        in_channels: int = 3,
    ) -> None:
        super().__init__()
        for name, number in (("width", width), ("levels", levels), ("blocks", blocks)):
            if number < 1:
                raise OptionError(f"Expected {name} to be at least 1 but got {number}.")
        self.input_size = (in_channels, 2 ** (levels + 3), 2 ** (levels + 3))
        self.stem = nn.Sequential(*convolution3x3(in_channels, width, 1), nn.ReLU())
        widths = [width * 2**level for level in range(levels + 1)]
        self.encoder = nn.ModuleList([_level(width, width, blocks)])
        self.encoder.extend(
            _level(above, below, blocks, stride=2) for above, below in pairwise(widths)
        )
        self.decoder = nn.ModuleList(
            _level(below + above, above, blocks)
            for above, below in reversed(list(pairwise(widths)))
        )
        self.head = nn.Conv2d(width, num_classes, 1)
        initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        smallest = 2 ** len(self.decoder)
        if min(images.shape[-2:]) < smallest:
            raise InputError(
                f"UNet: expected images of at least {smallest}×{smallest}, because the map is "
                f"halved {len(self.decoder)} times, but got {images.shape[-2]}×{images.shape[-1]}. "
                f"Enlarge them, or build it with fewer levels."
            )
        x = self.stem(images)
        passed: list[Tensor] = []
        for level in self.encoder:
            x = level(x)
            passed.append(x)
        passed.pop()
        for level in self.decoder:
            beside = passed.pop()
            # To its very size: an odd side is rounded up when it is halved.
            x = F.interpolate(x, beside.shape[-2:], mode="nearest")
            x = level(torch.cat([x, beside], 1))
        logits: Tensor = self.head(x)
        return logits


def _level(channels: int, width: int, blocks: int, stride: int = 1) -> nn.Sequential:
    first = BasicBlock(channels, width, stride)
    return nn.Sequential(first, *(BasicBlock(width, width, 1) for _ in range(blocks - 1)))
