"""Test images that are corrupted: noise, blur, light, compression, each at five strengths.

After Hendrycks and Dietterich (ICLR 2019), computed here with torchvision and Pillow; the strengths
are ours, for small images. What is drawn depends on the seed and the number of the image alone, so
every network sees the same images, in batches of any size.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from attnlab._errors import OptionError, unknown_name
from attnlab._seeds import stream
from attnlab.data.augment import normalised
from attnlab.data.batches import Batch, Chunk, Data

STRENGTHS = (1, 2, 3, 4, 5)

Corruption = Callable[[Tensor, float, Sequence[torch.Generator]], Tensor]
"""A function of bytes (N, C, H, W), of a value, and of one source of random numbers per image."""


def gaussian_noise(images: Tensor, value: float, draws: Sequence[torch.Generator]) -> Tensor:
    """Normal noise of standard deviation `value`, of pixels 0 to 1."""
    noise = [torch.randn(images.shape[1:], generator=draw) for draw in draws]
    return _bytes(images / 255 + value * torch.stack(noise))


def shot_noise(images: Tensor, value: float, draws: Sequence[torch.Generator]) -> Tensor:
    """Poisson noise: a white pixel has `value` photons."""
    counts = [
        torch.poisson(image / 255 * value, generator=draw)
        for image, draw in zip(images.float(), draws, strict=True)
    ]
    return _bytes(torch.stack(counts) / value)


def impulse_noise(images: Tensor, value: float, draws: Sequence[torch.Generator]) -> Tensor:
    """A share `value` of all values becomes black or white."""
    drawn = torch.stack([torch.rand(images.shape[1:], generator=draw) for draw in draws])
    images = torch.where(drawn < value / 2, 0, images)
    return torch.where(drawn > 1 - value / 2, 255, images).to(torch.uint8)


def gaussian_blur(images: Tensor, value: float, draws: Sequence[torch.Generator]) -> Tensor:
    """Blur by a Gaussian of standard deviation `value` pixels."""
    from torchvision.transforms.v2 import functional as F

    del draws
    radius = min(max(1, round(4 * value)), min(images.shape[2:]) - 1)
    return F.gaussian_blur(images, [2 * radius + 1] * 2, [value] * 2)


def brightness(images: Tensor, value: float, draws: Sequence[torch.Generator]) -> Tensor:
    """Multiply the pixels by `value`."""
    from torchvision.transforms.v2 import functional as F

    del draws
    return F.adjust_brightness(images, value)


def contrast(images: Tensor, value: float, draws: Sequence[torch.Generator]) -> Tensor:
    """The distance from the image's mean grey, times `value`."""
    from torchvision.transforms.v2 import functional as F

    del draws
    return F.adjust_contrast(images, value)


def jpeg(images: Tensor, value: float, draws: Sequence[torch.Generator]) -> Tensor:
    """Compressed with quality `value`."""
    import numpy as np
    from PIL import Image

    del draws
    made = []
    for image in images:
        file = io.BytesIO()
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(file, "JPEG", quality=int(value))
        made.append(torch.from_numpy(np.array(Image.open(file))).permute(2, 0, 1))
    return torch.stack(made)


def pixelate(images: Tensor, value: float, draws: Sequence[torch.Generator]) -> Tensor:
    """Made smaller by the factor `value`, and enlarged by repeating pixels."""
    from torchvision.transforms.v2 import InterpolationMode
    from torchvision.transforms.v2 import functional as F

    del draws
    size = list(images.shape[2:])
    smaller = [max(1, round(side * value)) for side in size]
    images = F.resize(images, smaller, antialias=True)
    return F.resize(images, size, interpolation=InterpolationMode.NEAREST)


CORRUPTIONS: dict[str, tuple[Corruption, tuple[float, ...]]] = {
    "gaussian_noise": (gaussian_noise, (0.04, 0.06, 0.08, 0.10, 0.12)),
    "shot_noise": (shot_noise, (500, 250, 100, 75, 50)),
    "impulse_noise": (impulse_noise, (0.01, 0.02, 0.03, 0.05, 0.07)),
    "gaussian_blur": (gaussian_blur, (0.4, 0.6, 0.8, 1.0, 1.2)),
    "brightness": (brightness, (1.1, 1.2, 1.35, 1.5, 1.8)),
    "contrast": (contrast, (0.75, 0.5, 0.4, 0.3, 0.15)),
    "jpeg": (jpeg, (80, 60, 40, 25, 15)),
    "pixelate": (pixelate, (0.9, 0.75, 0.6, 0.5, 0.4)),
}
"""The corruptions by name: the function and its value at each of the five strengths."""


def corrupted(
    images: Tensor, corruption: str, strength: int, numbers: Tensor, seed: int = 0
) -> Tensor:
    """`images`, bytes (N, C, H, W), under one of `CORRUPTIONS`; `numbers` are those of the
    images."""
    if corruption not in CORRUPTIONS:
        raise unknown_name("corruption", corruption, CORRUPTIONS)
    if strength not in STRENGTHS:
        raise OptionError(f"Expected a strength from 1 to 5 but got {strength}.")
    function, values = CORRUPTIONS[corruption]
    draws = [stream(seed, corruption, strength, int(number)) for number in numbers]
    return function(images, values[strength - 1], draws)


class CorruptedData(Data):
    """Data whose test images are corrupted; training images are as they were."""

    def __init__(self, data: Data, corruption: str, strength: int, seed: int = 0) -> None:
        self.facts = data.facts
        self._data, self._chosen = data, (corruption, strength)
        self._seed = seed

    def training(
        self, chunks: Sequence[Chunk], seed: int, epoch: int, device: torch.device
    ) -> Iterator[Batch]:
        return self._data.training(chunks, seed, epoch, device)

    def testing(self, chunks: Sequence[Tensor], device: torch.device) -> Iterator[Batch]:
        mean, std = self.facts.statistics(torch.device("cpu"))
        for numbers, batch in zip(chunks, self._data.testing(chunks, device), strict=True):
            pixels = self.facts.pixels(batch.inputs.cpu())
            images = corrupted(_bytes(pixels), *self._chosen, numbers, self._seed)
            yield Batch(normalised(images, mean, std).to(device), batch.targets)


def _bytes(pixels: Tensor) -> Tensor:
    """Pixels 0 to 1 as bytes."""
    return pixels.mul(255).round().clamp(0, 255).to(torch.uint8)
