"""The initial weights of the papers' networks."""

from __future__ import annotations

import math

from torch import nn


def initialise(network: nn.Module) -> None:
    """Draw every Conv2d weight from N(0, 2 / (kh · kw · out_channels)); norms become the identity.

    The fan-out ignores groups, as in the papers' code. Linear layers and convolution
    biases keep PyTorch's own initial values.
    """
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            height, width = module.kernel_size
            fan_out = height * width * module.out_channels
            nn.init.normal_(module.weight, std=math.sqrt(2.0 / fan_out))
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
