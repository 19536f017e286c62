"""Triplet Attention (Misra et al., WACV 2021).

Each pair of the three axes (height, width, channel) has its own gate: the maximum and the mean over
the third axis, a 7 x 7 convolution of these two planes, BatchNorm, σ. `gate` is the mean of the
three.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from attnlab._types import Features
from attnlab.gates._gate import BranchGate
from attnlab.gates._pooling import over_axis
from attnlab.gates._shared import broadcast_like, check_batch_statistics, odd_kernel_size


class PlaneGate(nn.Module):
    """The gate of one plane: of (batch, planes, rows, columns), with the third axis first."""

    def __init__(self, kernel_size: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 1, kernel_size, padding=kernel_size // 2, bias=False)
        self.norm = nn.BatchNorm2d(1, momentum=0.01)

    def forward(self, maximum: Tensor, mean: Tensor) -> Tensor:
        planes = torch.stack((maximum, mean), dim=1)
        check_batch_statistics(
            self.norm,
            planes.numel() // 2,
            TripletAttention.__name__,
            "Use a larger batch or a larger map",
        )
        return torch.sigmoid(self.norm(self.conv(planes)))[:, 0]

    def start_constant(self) -> None:
        nn.init.zeros_(self.conv.weight)
        self.norm.reset_parameters()


def _pooled(branch: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    return over_axis(torch.amax, branch, axis), over_axis(torch.mean, branch, axis)


def _mean_of_two(first: Tensor, second: Tensor) -> Tensor:
    return (first + second) / 2


def _mean_of_three(first: Tensor, second: Tensor, third: Tensor) -> Tensor:
    return (first + second + third) / 3


class TripletAttention(BranchGate):
    """Triplet gate; `spatial=False` leaves the plane of height and width out, as the authors can.

    Its number of parameters does not depend on the number of channels.
    """

    def __init__(self, channels: int, kernel_size: int = 7, spatial: bool = True) -> None:
        super().__init__(channels)
        size = odd_kernel_size(kernel_size)
        self.channel_width = PlaneGate(size)
        self.height_channel = PlaneGate(size)
        self.height_width = PlaneGate(size) if spatial else None

    def forward(self, branch: Features) -> Features:
        self.check_input(branch)
        dtype = branch.dtype
        channel_width = self.channel_width(*_pooled(branch, 2)).to(dtype)[:, :, None, :]
        # The convolution sees rows of height and columns of channels.
        over_width = (plane.transpose(1, 2) for plane in _pooled(branch, 3))
        height_channel = self.height_channel(*over_width).to(dtype).transpose(1, 2)[:, :, :, None]
        if self.height_width is None:
            return broadcast_like(branch, _mean_of_two, channel_width, height_channel)
        height_width = self.height_width(*_pooled(branch, 1)).to(dtype)[:, None]
        return broadcast_like(branch, _mean_of_three, channel_width, height_channel, height_width)

    def start_constant(self) -> float:
        for plane in (self.channel_width, self.height_channel, self.height_width):
            if plane is not None:
                plane.start_constant()
        return 0.5
