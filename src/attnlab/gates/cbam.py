"""Convolutional Block Attention Module (Woo et al., ECCV 2018).

A channel gate `c = σ(M(mean) + M(max))` with a shared two-layer M, then a spatial gate
`s = σ(conv₇ₓ₇[max_c, mean_c])` of the map already multiplied by c. `gate = c ⊗ s`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from attnlab._types import Features, Saved, Vector
from attnlab.gates._gate import BranchGate
from attnlab.gates._pooling import applied, is_channels_last
from attnlab.gates._shared import Excitation, check_batch_statistics, hidden_width, odd_kernel_size
from attnlab.gates._statistics import SpatialMap, scaled_channel_mean_max, spatial_mean_max


class _OuterGate(torch.autograd.Function):
    """A product forward; matrix products backward, which need no temporary to be summed."""

    generate_vmap_rule = True

    @staticmethod
    def forward(channel: Tensor, spatial: Tensor, channels_last: bool) -> Tensor:
        if channels_last:
            return (spatial.permute(0, 2, 3, 1) * channel[:, None, None, :]).permute(0, 3, 1, 2)
        return spatial * channel.view(*channel.shape, 1, 1)

    @staticmethod
    def setup_context(ctx: Saved, inputs: tuple[Tensor, Tensor, bool], output: object) -> None:  # noqa: ARG004
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx: Saved, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        channel, spatial = ctx.saved_tensors
        maps = grad.flatten(2)
        grad_channel = torch.matmul(maps, spatial.flatten(1)[:, :, None])[:, :, 0]
        grad_spatial = torch.matmul(channel[:, None, :], maps).view_as(spatial)
        return grad_channel, grad_spatial, None


def outer_gate(channel: Vector, spatial: SpatialMap, like: Features) -> Features:
    """`channel ⊗ spatial` in the memory order of `like`, which torch would not choose by itself."""
    return applied(_OuterGate, channel, spatial, is_channels_last(like))


class ConvolutionalBlockAttention(BranchGate):
    """CBAM gate without biases and norm, which reproduces the parameter count that ASR prints.

    `official=True` is the authors' own: biases in the two layers, BatchNorm after the convolution.
    """

    def __init__(
        self,
        channels: int,
        reduction: int | float = 16,
        kernel_size: int = 7,
        official: bool = False,
    ) -> None:
        super().__init__(channels)
        size = odd_kernel_size(kernel_size)
        hidden = hidden_width(channels, reduction)
        self.excitation = Excitation(channels, hidden, channels, bias=official)
        self.conv = nn.Conv2d(2, 1, size, padding=size // 2, bias=False)
        self.norm = nn.BatchNorm2d(1, momentum=0.01) if official else None

    def forward(self, branch: Features) -> Features:
        self.check_input(branch)
        mean, maximum = spatial_mean_max(branch)
        layers = self._modules  # self.conv is a search in three dictionaries, for every block
        excitation: Any = layers["excitation"]
        channel = torch.sigmoid(excitation(mean) + excitation(maximum))
        if channel.dtype is not branch.dtype:
            channel = channel.to(branch.dtype)
        mean, maximum = scaled_channel_mean_max(branch, channel)
        spatial: Tensor = layers["conv"](torch.cat((maximum, mean), dim=1))  # type: ignore[misc]
        if self.norm is not None:
            check_batch_statistics(
                self.norm,
                spatial.numel(),
                type(self).__name__,
                "Use a larger batch, a larger map or official=False",
            )
            spatial = self.norm(spatial)
        spatial = torch.sigmoid(spatial)
        if spatial.dtype is not branch.dtype:
            spatial = spatial.to(branch.dtype)
        return outer_gate(channel, spatial, branch)

    def start_constant(self) -> float:
        self.excitation.start_zero()
        nn.init.zeros_(self.conv.weight)
        if self.norm is not None:
            self.norm.reset_parameters()
        return 0.25
