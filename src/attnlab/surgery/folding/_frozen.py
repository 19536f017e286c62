"""Norms whose scale and shift are buffers: BatchNorm as detectors freeze it.

torchvision's `FrozenBatchNorm2d`, and those of Hugging Face, timm and detectron2, compute
`(x - mean) / sqrt(var + eps) * weight + bias` from four buffers. `weight` and `bias` are constants
of the network like any parameter, so they take a gate; the statistics do not.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

_BUFFERS = frozenset(("weight", "bias", "running_mean", "running_var"))


def frozen_scales(network: nn.Module) -> Iterator[str]:
    """The names of the buffers that scale and shift, of norms that are frozen."""
    for name, module in network.named_modules():
        stored = set(module._buffers) - module._non_persistent_buffers_set
        if stored >= _BUFFERS and not module._parameters:
            for buffer in ("weight", "bias"):
                if module._buffers[buffer] is not None:
                    yield f"{name}.{buffer}" if name else buffer
