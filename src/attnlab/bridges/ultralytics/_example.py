"""An image to run a network on."""

from __future__ import annotations

import torch

_SIZE = 64
"""Pixels of the example: the smallest that the strides of these networks divide evenly twice."""


def example_for(network: torch.nn.Module) -> torch.Tensor:
    """An image of noise, the same each time."""
    channels = int(getattr(network, "yaml", {}).get("channels", 3))
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(1, channels, _SIZE, _SIZE, generator=generator)
    parameter = next(network.parameters())
    return images.to(parameter.device, parameter.dtype)
