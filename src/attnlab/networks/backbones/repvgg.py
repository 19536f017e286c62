"""RepVGG-A0 for small images (Ding et al., CVPR 2021).

A stack of blocks, each the sum of a 3x3 convolution, a 1x1 convolution and, where the shape stays,
the identity, each with its own norm; then ReLU. Strides 1, 1, 2, 2, 2 instead of five halvings,
for 32x32 images (which variant the papers used on CIFAR is not known).

State-dict names: `stage0.branch_sum` and `stage{1..4}.{block}.branch_sum`, each with
`.branches.{dense,pointwise}.{conv,bn}` and `.branches.identity`, or `.fused` when deployed; `fc`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.networks.backbones._init import initialise
from attnlab.networks.backbones._reparameterize import (
    Branch,
    BranchSum,
    ConvolutionNorm,
    reparameterize_all,
)

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
