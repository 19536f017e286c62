"""What a user would otherwise take: timm's module, or the formula as it is usually written down.

Each peer multiplies by itself, as public modules do; peers of gates that read more than the branch
take the same arguments as the gate.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from timm.layers import EcaModule, EffectiveSEModule, GatherExcite, GlobalContext, SEModule
from timm.layers.cbam import CbamModule
from timm.layers.coord_attn import CoordAttn
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


class PlainBam(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        hidden = channels // 16
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.channel = nn.Sequential(
            nn.Linear(channels, hidden),
            nn.BatchNorm1d(hidden),
            nn.ReLU(inplace=True),
            nn.Linear(hidden, channels),
        )
        around = [
            layer
            for _ in range(2)
            for layer in (
                nn.Conv2d(hidden, hidden, 3, padding=4, dilation=4),
                nn.BatchNorm2d(hidden),
                nn.ReLU(inplace=True),
            )
        ]
        self.spatial = nn.Sequential(
            nn.Conv2d(channels, hidden, 1),
            nn.BatchNorm2d(hidden),
            nn.ReLU(inplace=True),
            *around,
            nn.Conv2d(hidden, 1, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        channel = self.channel(self.pool(x).flatten(1))[:, :, None, None]
        return x + x * torch.sigmoid(channel.expand_as(x) + self.spatial(x).expand_as(x))


class PlainScse(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.mlp = _mlp(channels, channels // 2, channels, True)
        self.conv = nn.Conv2d(channels, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        channel = torch.sigmoid(self.mlp(self.pool(x).flatten(1)))[:, :, None, None]
        return x * channel + x * torch.sigmoid(self.conv(x))


class PlainGep(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for number in range(3):
            layers += [
                nn.Conv2d(channels, channels, 3, 2, 1, groups=channels, bias=False),
                nn.BatchNorm2d(channels),
            ]
            if number < 2:
                layers.append(nn.ReLU(inplace=True))
        self.gather = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(F.interpolate(self.gather(x), size=x.shape[2:]))


class PlainEla(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, 7, padding=3, groups=channels, bias=False)
        self.norm = nn.GroupNorm(16, channels)

    def forward(self, x: Tensor) -> Tensor:
        rows = torch.sigmoid(self.norm(self.conv(x.mean(dim=3))))
        columns = torch.sigmoid(self.norm(self.conv(x.mean(dim=2))))
        return x * rows[:, :, :, None] * columns[:, :, None, :]


class PlainSimam(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        del channels

    def forward(self, x: Tensor) -> Tensor:
        d = (x - x.mean(dim=(2, 3), keepdim=True)) ** 2
        v = d.sum(dim=(2, 3), keepdim=True) / (x.shape[2] * x.shape[3] - 1)
        return x * torch.sigmoid(d / (4 * (v + 1e-4)) + 0.5)


class _PlainPlane(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 1, 7, padding=3, bias=False)
        self.norm = nn.BatchNorm2d(1)

    def forward(self, x: Tensor) -> Tensor:
        planes = torch.cat((x.amax(dim=1, keepdim=True), x.mean(dim=1, keepdim=True)), dim=1)
        return x * torch.sigmoid(self.norm(self.conv(planes)))


class PlainTriplet(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        del channels
        self.planes = nn.ModuleList(_PlainPlane() for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        first = self.planes[0](x.transpose(1, 2).contiguous()).transpose(1, 2)
        second = self.planes[1](x.transpose(1, 3).contiguous()).transpose(1, 3)
        return (first + second + self.planes[2](x)) / 3


class PlainEma(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        width = channels // 32
        self.strips = nn.Conv2d(width, width, 1)
        self.conv = nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.GroupNorm(width, width)

    def forward(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        g = x.reshape(b * 32, c // 32, h, w)
        strips = torch.cat((g.mean(dim=3), g.mean(dim=2)), dim=2)[..., None]
        rows, columns = torch.sigmoid(self.strips(strips)).split([h, w], dim=2)
        u = self.norm(g * rows * columns.transpose(2, 3))
        v = self.conv(g)
        by_u, by_v = (each.mean(dim=(2, 3)).softmax(dim=1)[:, None] for each in (u, v))
        gate = torch.bmm(by_u, v.flatten(2)) + torch.bmm(by_v, u.flatten(2))
        return (g * torch.sigmoid(gate.view(b * 32, 1, h, w))).view(b, c, h, w)


class PlainGam(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        hidden = channels // 4
        self.mlp = _mlp(channels, hidden, channels, True)
        self.spatial = nn.Sequential(
            nn.Conv2d(channels, hidden, 7, padding=3),
            nn.BatchNorm2d(hidden),
            nn.ReLU(inplace=True),
            nn.Conv2d(hidden, channels, 7, padding=3),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x * torch.sigmoid(self.mlp(x.permute(0, 2, 3, 1))).permute(0, 3, 1, 2)
        return x * torch.sigmoid(self.spatial(x))


class PlainGct(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(1, channels, 1, 1))
        self.gamma = nn.Parameter(torch.zeros(1, channels, 1, 1))
        self.beta = nn.Parameter(torch.zeros(1, channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        e = ((x**2).sum(dim=(2, 3), keepdim=True) + 1e-5).sqrt() * self.alpha
        e = e / ((e**2).mean(dim=1, keepdim=True) + 1e-5).sqrt()
        return x * (1 + torch.tanh(self.gamma * e + self.beta))


def _coordinates(channels: int) -> nn.Module:
    return CoordAttn(channels, rd_channels=max(8, channels // 32), bias=True)


PEERS: dict[str, tuple[str, Callable[[int], nn.Module]]] = {
    "se": ("timm SEModule", lambda channels: SEModule(channels, rd_ratio=1 / 16, rd_divisor=1)),
    "eca": ("timm EcaModule", EcaModule),
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
    "bam": ("plain", PlainBam),
    "scse": ("plain", PlainScse),
    "ese": ("timm EffectiveSEModule", EffectiveSEModule),
    "ge": ("timm GatherExcite", lambda channels: GatherExcite(channels, use_mlp=False)),
    "gep": ("plain", PlainGep),
    "gc": ("timm GlobalContext", lambda channels: GlobalContext(channels, rd_ratio=1 / 16)),
    "coord": ("timm CoordAttn", _coordinates),
    "ela": ("plain", PlainEla),
    "simam": ("plain", PlainSimam),
    "triplet": ("plain", PlainTriplet),
    "ema": ("plain", PlainEma),
    "gam": ("plain", PlainGam),
    "gct": ("plain", PlainGct),
}
