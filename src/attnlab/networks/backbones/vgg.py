"""VGG19 with BatchNorm (Simonyan and Zisserman, ICLR 2015) for images of at least 32x32.

Convolutions as in the paper; the map is averaged to 1x1 before the three linear layers
(512-4096-4096-classes), so that 96x96 images work too. On 32x32 it already is 1x1.

State-dict names are torchvision's: `features.{i}`, `classifier.{0,3,6}`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.networks.backbones._init import initialise

STAGES = ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4))
"""(width, convolutions), each followed by a 2x2 max-pool."""

HIDDEN = 4096


class VGG19(nn.Module):
    """VGG19 with a BatchNorm after each convolution."""

    def __init__(self, num_classes: int = 10, in_channels: int = 3) -> None:
        super().__init__()
        self.input_size = (in_channels, 32, 32)
        layers: list[nn.Module] = []
        channels = in_channels
        for width, convolutions in STAGES:
            for _ in range(convolutions):
                layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width)]
                layers += [nn.ReLU()]
                channels = width
            layers += [nn.MaxPool2d(2)]
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Linear(channels, HIDDEN),
            nn.ReLU(),
            nn.Dropout(),
            nn.Linear(HIDDEN, HIDDEN),
            nn.ReLU(),
            nn.Dropout(),
            nn.Linear(HIDDEN, num_classes),
        )
        initialise(self)

    @property
    def attention_sites(self) -> tuple[str, ...]:
        """After each of the 16 norms, before ReLU."""
        return tuple(
            f"features.{index}"
            for index, layer in enumerate(self.features)
            if isinstance(layer, nn.BatchNorm2d)
        )

    def forward(self, images: Tensor) -> Tensor:
        x = self.features(images)
        return self.classifier(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))
