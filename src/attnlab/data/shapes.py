"""Discs, squares and triangles on a noisy gradient, made in code: boxes are known to the pixel."""

from __future__ import annotations

from functools import lru_cache
from math import cos, pi, sin

import numpy as np
import torch

from attnlab.data.batches import Facts
from attnlab.data.boxes import BoxData, BoxImage, as_target
from attnlab.data.config import DataConfig

CATEGORIES = ("disc", "square", "triangle")
SIDE, TRAIN, TEST = 96, 480, 200
_MOST = 4
"""Objects in one image."""
_NOISE = 0.06
"""Standard deviation of the noise on pixels 0 to 1."""
_SIZES = 14 / 96, 44 / 96
"""Smallest and largest object, as a share of the image's side."""
_ATTEMPTS = 20
"""Attempts to find a free place for an object."""


def load_shapes(config: DataConfig) -> BoxData:
    """Make the same images for everyone, as many and as large as `config` says."""
    side = config.size or SIDE
    train = _images(config.train_subset or TRAIN, side, 1)
    test = _images(config.test_subset or TEST, side, 2)
    facts = Facts(
        "shapes",
        "boxes",
        len(CATEGORIES),
        (3, side, side),
        len(train),
        len(test),
        (0.5, 0.5, 0.5),
        (0.25, 0.25, 0.25),
        shapes_checksum(config),
        CATEGORIES,
    )
    return BoxData(facts, train, test, config.augmentation)


def shapes_checksum(config: DataConfig) -> str:
    """Return what tells these images from others; not of the pixels, because a processor may round
    the gradient differently."""
    numbers = (config.size or SIDE, config.train_subset or TRAIN, config.test_subset or TEST)
    return "shapes-1:" + ":".join(map(str, numbers))


@lru_cache(maxsize=4)
def _images(number: int, side: int, seed: int) -> tuple[BoxImage, ...]:
    numbers = np.random.default_rng(seed)
    return tuple(_drawn(numbers, side) for _ in range(number))


def _drawn(numbers: np.random.Generator, side: int) -> BoxImage:
    rows, columns = np.mgrid[0:side, 0:side].astype(np.float32)
    pixels = _background(numbers, rows, columns, side)
    boxes: list[list[int]] = []
    labels: list[int] = []
    for _ in range(numbers.integers(1, _MOST + 1)):
        for _ in range(_ATTEMPTS):
            label = int(numbers.integers(1, len(CATEGORIES) + 1))
            size = numbers.uniform(*_SIZES) * side
            x, y = numbers.uniform(size / 2 + 1, side - size / 2 - 1, 2)
            mask = object_mask(label, columns - x, rows - y, size)
            box = mask_box(mask)
            if not any(_overlap(box, other) for other in boxes):
                noise = numbers.normal(0, _NOISE, (int(mask.sum()), 3))
                pixels[mask] = numbers.random(3) + noise
                boxes.append(box)
                labels.append(label)
                break
    image = torch.from_numpy((np.clip(pixels, 0, 1) * 255).round().astype(np.uint8))
    return BoxImage(
        image.permute(2, 0, 1).contiguous(), as_target(torch.tensor(boxes), torch.tensor(labels))
    )


def _background(
    numbers: np.random.Generator, rows: np.ndarray, columns: np.ndarray, side: int
) -> np.ndarray:
    first, last = numbers.random((2, 3)) * 0.5 + 0.25
    angle = numbers.random() * 2 * pi
    along = (columns * cos(angle) + rows * sin(angle)) * (0.7 / side)
    pixels: np.ndarray = first + (last - first) * along[..., None]
    return pixels + numbers.normal(0, _NOISE, pixels.shape)


def object_mask(label: int, x: np.ndarray, y: np.ndarray, size: float) -> np.ndarray:
    """The pixels of an object whose centre is at 0."""
    half = size / 2
    if CATEGORIES[label - 1] == "disc":
        found: np.ndarray = x**2 + y**2 <= half**2
    elif CATEGORIES[label - 1] == "square":
        found = np.maximum(abs(x), abs(y)) <= half
    else:
        found = (abs(y) <= half) & (abs(x) <= (y + half) / 2)
    return found


def mask_box(mask: np.ndarray) -> list[int]:
    """The tightest box: left, top, right and bottom edge."""
    rows, columns = np.nonzero(mask)
    return [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]


def _overlap(one: list[int], other: list[int]) -> bool:
    return min(one[2], other[2]) > max(one[0], other[0]) and min(one[3], other[3]) > max(
        one[1], other[1]
    )
