"""Images made in code."""

from __future__ import annotations

import torch

from attnlab._seeds import stream
from attnlab.data.memory import Pixels


def fake(
    classes: int, train: int, test: int, sides: tuple[int, int] = (32, 32)
) -> tuple[Pixels, Pixels, int]:
    """Noise, brighter in one row per class: something that can be learned, of any number."""
    height, width = sides

    def some(number: int, purpose: str) -> Pixels:
        numbers = stream(0, "fake", purpose)
        labels = torch.arange(number) % classes
        images = torch.randint(
            128, (number, 3, height, width), generator=numbers, dtype=torch.uint8
        )
        row = (labels * height // classes)[:, None, None, None]
        return Pixels(images + 100 * (torch.arange(height).view(1, 1, -1, 1) == row).byte(), labels)

    return some(train, "train"), some(test, "test"), classes
