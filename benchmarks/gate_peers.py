"""What a user would otherwise take: timm's module, or the formula as it is usually written down.

Each peer multiplies by itself, as public modules do; peers of gates that read more than the branch
take the same arguments as the gate.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from timm.layers import EcaModule, SEModule
from timm.layers.cbam import CbamModule
from torch import Tensor, nn
from torch.nn import functional as F


def _mlp(inputs: int, hidden: int, outputs: int, bias: bool) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, hidden, bias=bias),
        nn.ReLU(inplace=True),
        nn.Linear(hidden, outputs, bias=bias),
    )


class PlainSem(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.switch = nn.Linear(channels, 3)
        self.mlp = _mlp(channels, channels // 16, channels, True)
        self.conv = nn.Conv1d(1, 1, 5, padding=2, bias=False)
        self.weight = nn.Parameter(torch.zeros(1, channels, 1, 1))
        self.bias = nn.Parameter(-torch.ones(1, channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        pooled = self.pool(x)
        z = pooled.flatten(1)
        g = torch.sigmoid(self.switch(z))[:, :, None, None, None]
        full = self.mlp(z)[:, :, None, None] * g[:, 0]
        local = self.conv(z[:, None]).transpose(1, 2)[..., None] * g[:, 1]
        affine = (pooled * self.weight + self.bias) * g[:, 2]
        gate = torch.sigmoid(full) * torch.sigmoid(local) * torch.sigmoid(affine)
        return x * gate


class PlainSrm(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.style = nn.Parameter(torch.zeros(channels, 2))
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(*x.shape[:2], -1)
        mean = flat.mean(dim=2, keepdim=True)
        std = (flat.var(dim=2, keepdim=True) + 1e-5).sqrt()
        z = (torch.cat((mean, std), dim=2) * self.style[None]).sum(dim=2)[:, :, None, None]
        return x * torch.sigmoid(self.norm(z))


class PlainFca(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        size = max(7, min(32, 2048 // channels))
        index = torch.arange(size) + 0.5
        rows = torch.tensor([0, 0, 6, 0, 0, 1, 1, 4, 5, 1, 3, 0, 0, 0, 3, 2]) * (size // 7)
        columns = torch.tensor([0, 1, 0, 5, 2, 0, 2, 0, 0, 6, 0, 4, 6, 3, 5, 2]) * (size // 7)
        basis = torch.einsum(
            "gh,gw->ghw",
            torch.cos(math.pi * rows[:, None] * index / size),
            torch.cos(math.pi * columns[:, None] * index / size),
        )
        self.size = size
        self.register_buffer("basis", basis.repeat_interleave(channels // 16, dim=0))
        self.mlp = _mlp(channels, channels // 16, channels, True)

    def forward(self, x: Tensor) -> Tensor:
        pooled = x
        if x.shape[2:] != (self.size, self.size):
            pooled = F.adaptive_avg_pool2d(x, self.size)
        y = torch.sum(pooled * self.basis, dim=[2, 3])
        gate = torch.sigmoid(self.mlp(y))[:, :, None, None]
        return x * gate.expand_as(x)


class PlainIe(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.weight = nn.Parameter(torch.zeros(1, channels, 1, 1))
        self.bias = nn.Parameter(-torch.ones(1, channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.pool(x) * self.weight + self.bias)


class PlainIebn(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.norm = nn.BatchNorm2d(channels, affine=False)
        self.gamma = nn.Parameter(torch.ones(1, channels, 1, 1))
        self.beta = nn.Parameter(torch.zeros(1, channels, 1, 1))
        self.weight = nn.Parameter(torch.zeros(1, channels, 1, 1))
        self.bias = nn.Parameter(-torch.ones(1, channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.pool(x) * self.weight + self.bias)
        return self.norm(x) * (self.gamma * gate) + self.beta


class PlainSge(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.groups = groups = min(64, channels)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.weight = nn.Parameter(torch.zeros(1, groups, 1, 1))
        self.bias = nn.Parameter(torch.ones(1, groups, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        x = x.reshape(b * self.groups, -1, h, w)
        t = (x * self.pool(x)).sum(dim=1).view(b * self.groups, -1)
        t = t - t.mean(dim=1, keepdim=True)
        t = t / (t.std(dim=1, keepdim=True) + 1e-5)
        t = t.view(b, self.groups, h, w) * self.weight + self.bias
        return (x * torch.sigmoid(t.view(b * self.groups, 1, h, w))).view(b, c, h, w)


class PlainDia(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.a = _mlp(channels, channels // 4, 4 * channels, True)
        self.b = _mlp(channels, channels // 4, 4 * channels, True)

    def forward(self, x: Tensor) -> Tensor:
        z = self.pool(x).flatten(1)
        h = c = torch.zeros_like(z)
        i, f, g, o = (self.a(z) + self.b(h)).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return x * (torch.sigmoid(o) * torch.sigmoid(c))[:, :, None, None]


class PlainSpa(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.pools = nn.ModuleList(nn.AdaptiveAvgPool2d(level) for level in (1, 2, 4))
        self.mlp = _mlp(21 * channels, channels // 16, channels, False)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.cat([pool(x).reshape(x.shape[0], -1) for pool in self.pools], dim=1)
        return x * torch.sigmoid(self.mlp(y))[:, :, None, None]


class PlainStep(nn.Module):
    """The figure, in its order: convolution of the interleaved maps, pooling, norm, IE."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2 * channels, channels, 1, groups=channels, bias=False)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.norm = nn.BatchNorm2d(channels)
        self.weight = nn.Parameter(torch.zeros(1, channels, 1, 1))
        self.bias = nn.Parameter(-torch.ones(1, channels, 1, 1))

    def forward(self, shortcut: Tensor, branch: Tensor) -> Tensor:
        pair = torch.stack((shortcut, shortcut + branch), dim=2).flatten(1, 2)
        mixed = self.norm(self.pool(self.conv(pair)))
        return branch * torch.sigmoid(mixed * self.weight + self.bias)


def _timm_se(channels: int) -> nn.Module:
    return SEModule(channels, rd_ratio=1 / 16, rd_divisor=1)


def _timm_eca(channels: int) -> nn.Module:
    return EcaModule(channels)


PEERS: dict[str, tuple[str, Callable[[int], nn.Module]]] = {
    "se": ("timm SEModule", _timm_se),
    "eca": ("timm EcaModule", _timm_eca),
    "cbam": ("timm CbamModule", CbamModule),
    "sem": ("plain", PlainSem),
    "srm": ("plain", PlainSrm),
    "fca": ("plain", PlainFca),
    "ie": ("plain", PlainIe),
    "iebn": ("plain", PlainIebn),
    "sge": ("plain", PlainSge),
    "dia": ("plain", PlainDia),
    "spa": ("plain", PlainSpa),
    "step": ("plain", PlainStep),
}
