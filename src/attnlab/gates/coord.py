"""Coordinate Attention (Hou et al., CVPR 2021).

The means over width and over height go, one after the other, through a shared 1 x 1 convolution to
max(8, C / 32) channels, BatchNorm and a hard swish; from there a 1 x 1 convolution for each axis
makes the gate of every row, `g`, and of every column, `h`. `gate = σ(g) ⊗ σ(h)`.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from attnlab._types import Features
from attnlab.gates._gate import BranchGate
from attnlab.gates._pooling import over_axis
from attnlab.gates._shared import broadcast_like, floored_width, zero

LEAST = 8
"""Hidden channels at least, as in the authors' code."""


class CoordinateAttention(BranchGate):
    """CA gate. All three convolutions have a bias, as in the authors' code."""

    def __init__(self, channels: int, reduction: int = 32) -> None:
        super().__init__(channels)
        hidden = floored_width(channels, reduction, LEAST)
        self.reduce = nn.Conv1d(channels, hidden, 1)
        self.norm = nn.BatchNorm1d(hidden)
        self.rows = nn.Conv1d(hidden, channels, 1)
        self.columns = nn.Conv1d(hidden, channels, 1)

    def forward(self, branch: Features) -> Features:
        self.check_input(branch)
        height, width = branch.shape[2:]
        strips = torch.cat(
            (over_axis(torch.mean, branch, 3), over_axis(torch.mean, branch, 2)), dim=2
        )
        hidden = F.hardswish(self.norm(self.reduce(strips)))
        of_rows, of_columns = hidden.split([height, width], dim=2)
        rows = torch.sigmoid(self.rows(of_rows)).to(branch.dtype)[:, :, :, None]
        columns = torch.sigmoid(self.columns(of_columns)).to(branch.dtype)[:, :, None, :]
        return broadcast_like(branch, torch.mul, rows, columns)

    def start_constant(self) -> float:
        zero(self.rows)
        zero(self.columns)
        return 0.25
