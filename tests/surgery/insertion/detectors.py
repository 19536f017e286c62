"""Detectors, written small."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from tests.surgery.insertion.networks import SlotBlock
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval


class ConvBlock(nn.Module):
    """Convolution, norm, activation, which fuse as those of Ultralytics do."""

    def __init__(self, channels: int, given: int | None = None, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(given or channels, channels, 3, stride, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(channels)
        self.act = nn.SiLU()

    def forward(self, x):
        return self.act(self.bn(self.conv(x)))

    def forward_fuse(self, x):
        return self.act(self.conv(x))


class Bottleneck(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.cv1, self.cv2 = ConvBlock(channels), ConvBlock(channels)

    def forward(self, x):
        return x + self.cv2(self.cv1(x))


class YoloLike(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvBlock(8, 3, stride=2)
        self.blocks = nn.Sequential(Bottleneck(8), Bottleneck(8))
        self.head = nn.Conv2d(8, 5, 1)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)))

    def fuse(self) -> None:
        """Norms into convolutions; deletes the norms and rebinds the forward."""
        for module in self.modules():
            if isinstance(module, ConvBlock) and hasattr(module, "bn"):
                module.conv = fuse_conv_bn_eval(module.conv, module.bn)
                delattr(module, "bn")
                module.forward = module.forward_fuse


class FeaturePyramid(nn.Module):
    """Two stages with residual steps and a top-down merge of their maps."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvBlock(8, 3, stride=2)
        self.stages = nn.ModuleList(
            nn.Sequential(ConvBlock(8, stride=2), SlotBlock(8), SlotBlock(8)) for _ in range(2)
        )
        self.lateral = nn.ModuleList(nn.Conv2d(8, 8, 1) for _ in range(2))

    def forward(self, x):
        x = self.stem(x)
        maps = []
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        fine, coarse = (layer(each) for layer, each in zip(self.lateral, maps, strict=True))
        return {"fine": fine + F.interpolate(coarse, scale_factor=2), "coarse": coarse}


class DetrLike(nn.Module):
    """A convolutional body, one encoder and one decoder layer, queries with an embedding each."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(ConvBlock(16, 3, stride=2), SlotBlock(16))
        self.encoder = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.decoder = nn.TransformerDecoderLayer(16, 2, 32, batch_first=True)
        self.queries = nn.Parameter(torch.randn(6, 16))
        self.positions = nn.Parameter(torch.randn(64, 16))
        self.boxes = nn.Linear(16, 4)

    def forward(self, x):
        tokens = self.body(x).flatten(2).transpose(1, 2)
        memory = self.encoder(tokens + self.positions[: tokens.shape[1]])
        queries = self.queries.expand(len(x), -1, -1)
        return self.boxes(self.decoder(queries, memory)).sigmoid()
