"""Blocks whose branch ends in norm → activation → addition."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ConvNormAct(nn.Module):
    """As in every YOLO since v5."""

    def __init__(self, inputs: int, outputs: int, size: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, size, padding=size // 2, bias=False)
        self.bn = nn.BatchNorm2d(outputs)
        self.act = nn.SiLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.bn(self.conv(x)))


class Bottleneck(nn.Module):
    def __init__(self, channels: int, add: bool = True) -> None:
        super().__init__()
        self.cv1, self.cv2 = ConvNormAct(channels, 4, 3), ConvNormAct(4, channels, 3)
        self.add = add

    def forward(self, x: Tensor) -> Tensor:
        return x + self.cv2(self.cv1(x)) if self.add else self.cv2(self.cv1(x))


class C2f(nn.Module):
    """YOLOv8's block: bottlenecks in a row, all of them concatenated."""

    def __init__(self, channels: int, number: int = 2) -> None:
        super().__init__()
        self.half = channels // 2
        self.cv1 = ConvNormAct(channels, channels)
        self.cv2 = ConvNormAct((2 + number) * self.half, channels)
        self.m = nn.ModuleList(Bottleneck(self.half) for _ in range(number))

    def forward(self, x: Tensor) -> Tensor:
        y = list(self.cv1(x).chunk(2, 1))
        y.extend(block(y[-1]) for block in self.m)
        return self.cv2(torch.cat(y, 1))


class Yolo(nn.Module):
    """Three bottlenecks that add, one that does not, and raw predictions."""

    input_size = (3, 16, 16)

    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvNormAct(3, 8, 3)
        self.model = nn.Sequential(C2f(8), Bottleneck(8), Bottleneck(8, add=False))
        self.detect = nn.Conv2d(8, 5, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.detect(self.model(self.stem(x)))


class OneBlock(nn.Module):
    """A block of somebody's between a stem and a head."""

    input_size = (3, 16, 16)

    def __init__(self, block: nn.Module, channels: int = 8) -> None:
        super().__init__()
        self.stem, self.block = nn.Conv2d(3, channels, 3, padding=1), block
        self.head = nn.Linear(channels, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.block(self.stem(x)).mean((2, 3)))
