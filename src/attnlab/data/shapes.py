"""Discs, squares and triangles on a noisy gradient, made in code: boxes and masks are known to the
pixel."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import cos, pi, sin
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from attnlab.data.batches import Facts, Points, Targets
from attnlab.data.boxes import BoxData, BoxImage, Target, as_target
from attnlab.data.config import DataConfig
from attnlab.data.masks import MaskData, MaskImage, blind_overlap, class_counts

CATEGORIES = ("disc", "square", "triangle")
SIDE, TRAIN, TEST = 96, 480, 200
_MOST = 4
"""Objects in one image."""
_NOISE = 0.06
"""Standard deviation of the noise on pixels 0 to 1."""
_SIZES = 14 / 96, 44 / 96
"""Smallest and largest object, as a share of the image's side."""
_CORNERS = 48
"""Of the outline of a disc."""
POINTS = Points(3, True, (0, 2, 1))
"""The top of an object, the lower left and the lower right of its border."""
_ATTEMPTS = 20
"""Attempts to find a free place for an object."""


def load_shapes(config: DataConfig) -> BoxData:
    """Make the same images for everyone, as many and as large as `config` says."""
    train, test = _parts(config)
    return BoxData(
        _facts(config, "boxes", CATEGORIES),
        [BoxImage(each.pixels, each.target, each.outlines, each.points) for each in train],
        [BoxImage(each.pixels, each.target, each.outlines, each.points) for each in test],
        config.augmentation,
    )


def load_shape_masks(config: DataConfig) -> MaskData:
    """The images of `load_shapes`, with the class of every pixel: 0 is the background."""
    train, test = _parts(config)
    counts = torch.stack([class_counts(each.mask) for each in test]).sum(0)
    facts = _facts(config, "masks", ("background", *CATEGORIES))
    return MaskData(
        replace(facts, blind=blind_overlap(counts)),
        [MaskImage(each.pixels, each.mask) for each in train],
        [MaskImage(each.pixels, each.mask) for each in test],
        config.augmentation,
    )


def _facts(config: DataConfig, targets: Targets, names: tuple[str, ...]) -> Facts:
    side = config.size or SIDE
    return Facts(
        config.name,
        targets,
        len(names),
        (3, side, side),
        config.train_subset or TRAIN,
        config.test_subset or TEST,
        (0.5, 0.5, 0.5),
        (0.25, 0.25, 0.25),
        shapes_checksum(config),
        names,
        points=POINTS if targets == "boxes" else None,
    )


def shapes_checksum(config: DataConfig) -> str:
    """Return what tells these images from others; not of the pixels, because a processor may round
    the gradient differently."""
    numbers = (config.size or SIDE, config.train_subset or TRAIN, config.test_subset or TEST)
    return "shapes-1:" + ":".join(map(str, numbers))


class _Drawn(NamedTuple):
    """One image, and what is known of it."""

    pixels: Tensor
    target: Target
    mask: Tensor
    outlines: tuple[Tensor, ...]
    points: Tensor


def _parts(config: DataConfig) -> tuple[tuple[_Drawn, ...], tuple[_Drawn, ...]]:
    """The training and the test images."""
    side = config.size or SIDE
    train = _images(config.train_subset or TRAIN, side, 1)
    return train, _images(config.test_subset or TEST, side, 2)


@lru_cache(maxsize=4)
def _images(number: int, side: int, seed: int) -> tuple[_Drawn, ...]:
    numbers = np.random.default_rng(seed)
    return tuple(_drawn(numbers, side) for _ in range(number))


def _drawn(numbers: np.random.Generator, side: int) -> _Drawn:
    rows, columns = np.mgrid[0:side, 0:side].astype(np.float32)
    pixels = _background(numbers, rows, columns, side)
    boxes: list[list[int]] = []
    labels: list[int] = []
    places: list[tuple[float, float, float]] = []
    classes = np.zeros((side, side), np.uint8)
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
                classes[mask] = label
                boxes.append(box)
                labels.append(label)
                places.append((float(x), float(y), float(size)))
                break
    image = torch.from_numpy((np.clip(pixels, 0, 1) * 255).round().astype(np.uint8))
    return _Drawn(
        image.permute(2, 0, 1).contiguous(),
        as_target(torch.tensor(boxes), torch.tensor(labels)),
        torch.from_numpy(classes),
        tuple(_moved(object_outline(n), *at) for n, at in zip(labels, places, strict=True)),
        torch.stack([_seen(object_points(n), *at) for n, at in zip(labels, places, strict=True)]),
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


def object_outline(label: int) -> Tensor:
    """The corners of an object of size 2 whose centre is at 0."""
    if CATEGORIES[label - 1] == "disc":
        angles = torch.arange(_CORNERS, dtype=torch.float64) * (2 * pi / _CORNERS)
        return torch.stack([angles.sin(), -angles.cos()], 1)
    if CATEGORIES[label - 1] == "square":
        return torch.tensor([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]]).double()
    return torch.tensor([[0.0, -1.0], [1.0, 1.0], [-1.0, 1.0]]).double()


def object_points(label: int) -> Tensor:
    """Top, lower left and lower right of the border of an object of size 2."""
    low = 0.5**0.5 if CATEGORIES[label - 1] == "disc" else 1.0
    return torch.tensor([[0.0, -1.0], [-low, low], [low, low]]).double()


def _moved(corners: Tensor, x: float, y: float, size: float) -> Tensor:
    """Where corners of an object lie; the middle of the first pixel is at a half."""
    return corners * (size / 2) + torch.tensor([x + 0.5, y + 0.5]).double()


def _seen(points: Tensor, x: float, y: float, size: float) -> Tensor:
    """Where points of an object lie; all of them are seen."""
    return torch.cat([_moved(points, x, y, size), torch.full((len(points), 1), 2.0)], 1)


def mask_box(mask: np.ndarray) -> list[int]:
    """The tightest box: left, top, right and bottom edge."""
    rows, columns = np.nonzero(mask)
    return [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]


def _overlap(one: list[int], other: list[int]) -> bool:
    return min(one[2], other[2]) > max(one[0], other[0]) and min(one[3], other[3]) > max(
        one[1], other[1]
    )
