"""Efficient Local Attention (Xu and Wan, 2024).

The means over width and over height go through a convolution along the strip, GroupNorm and σ each:
`gate = σ(GN(conv(rows))) ⊗ σ(GN(conv(columns)))`. No channel is lost to a bottleneck.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from attnlab._errors import unknown_name
from attnlab._types import Features
from attnlab.gates._gate import BranchGate
from attnlab.gates._pooling import over_axis
from attnlab.gates._shared import broadcast_like, group_count

Version = Literal["T", "B", "S", "L"]


class _Setting(NamedTuple):
    kernel_size: int
    width: int
    """Channels that a group of the convolution mixes."""
    norm_groups: int


_SETTINGS: Final[dict[Version, _Setting]] = {
    "T": _Setting(5, 1, 32),
    "B": _Setting(7, 1, 16),
    "S": _Setting(5, 8, 16),
    "L": _Setting(7, 8, 16),
}


class StripGate(nn.Module):
    """Convolution along the strip without bias, GroupNorm, σ."""

    def __init__(self, channels: int, setting: _Setting) -> None:
        super().__init__()
        size = setting.kernel_size
        groups = group_count(channels, max(1, channels // setting.width))
        self.conv = nn.Conv1d(
            channels, channels, size, padding=size // 2, groups=groups, bias=False
        )
        self.norm = nn.GroupNorm(group_count(channels, setting.norm_groups), channels)

    def forward(self, strip: Tensor) -> Tensor:
        # Not the module's forward, which refuses a strip of a single value per group.
        norm = self.norm
        mixed = torch.group_norm(
            self.conv(strip), norm.num_groups, norm.weight, norm.bias, norm.eps
        )
        return torch.sigmoid(mixed)


class EfficientLocalAttention(BranchGate):
    """ELA gate in the paper's versions "T", "B", "S" and "L", small to large.

    The paper has no public code. Its equations name one function for each axis; the listings that
    circulate use one convolution and one norm for both, which is the default here:
    `shared=False` has one each. Ours: where the number of groups does not divide the channels, the
    largest one below it that does.
    """

    def __init__(self, channels: int, version: Version = "B", shared: bool = True) -> None:
        super().__init__(channels)
        if version not in get_args(Version):
            raise unknown_name("version of ELA", version, get_args(Version))
        self.version = version
        self.rows = StripGate(channels, _SETTINGS[version])
        self.columns = None if shared else StripGate(channels, _SETTINGS[version])

    def forward(self, branch: Features) -> Features:
        self.check_input(branch)
        of_columns = self.rows if self.columns is None else self.columns
        rows = self.rows(over_axis(torch.mean, branch, 3)).to(branch.dtype)[:, :, :, None]
        columns = of_columns(over_axis(torch.mean, branch, 2)).to(branch.dtype)[:, :, None, :]
        return broadcast_like(branch, torch.mul, rows, columns)

    def start_constant(self) -> float:
        for strip in (self.rows, self.columns):
            if strip is not None:
                nn.init.zeros_(strip.norm.weight)
                nn.init.zeros_(strip.norm.bias)
        return 0.25

    def extra_repr(self) -> str:
        return f"{self.channels}, version={self.version!r}, shared={self.columns is None}"
