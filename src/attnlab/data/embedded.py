"""Images that need no file: scikit-learn's digits (with their class, as pairs with labels, turned
with an angle) and noise that can be learned."""

from __future__ import annotations

import gzip
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from attnlab._extras import needs
from attnlab._seeds import stream
from attnlab.data.memory import Pixels, as_pixels


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


MOST_DEGREES = 45.0
"""Digits are turned by up to this much to either side."""
_PAIRS = {"train": 2000, "test": 500}


class _Digits(NamedTuple):
    images: np.ndarray
    classes: np.ndarray


def digits() -> tuple[Pixels, Pixels, int]:
    """Every fifth image is a test image: 1438 and 359, all ten classes in both."""
    train, test = _parts()
    return (
        as_pixels(train.images, train.classes, "digits"),
        as_pixels(test.images, test.classes, "digits"),
        10,
    )


def digit_pairs() -> tuple[Pixels, Pixels, int]:
    """8×16 images of two digits; the labels say which of the ten are there. Two of the same digit
    are one label. Training and test pairs are made of different digits."""
    train, test = _parts()
    return _pairs(train, "train"), _pairs(test, "test"), 10


def digit_angles() -> tuple[Pixels, Pixels, int]:
    """16×16 images of turned digits; the value is the angle in units of `MOST_DEGREES`, positive
    against the clock."""
    train, test = _parts()
    return _turned(train, "train"), _turned(test, "test"), 1


def _parts() -> tuple[_Digits, _Digits]:
    table = _table()
    images, classes = table[:, :64].reshape(-1, 8, 8), table[:, 64].astype(np.int64)
    images = (images * (255 / 16)).round().astype(np.uint8)
    testing = np.arange(len(images)) % 5 == 4
    return (
        _Digits(images[~testing], classes[~testing]),
        _Digits(images[testing], classes[testing]),
    )


def _table() -> np.ndarray:
    """A row for every digit: 64 pixels from 0 to 16, and which digit it is. Of the file that
    scikit-learn brings, since to import scikit-learn takes seconds."""
    installed = find_spec("sklearn")
    for folder in () if installed is None else installed.submodule_search_locations or ():
        file = Path(folder) / "datasets" / "data" / "digits.csv.gz"
        if file.is_file():
            with gzip.open(file, "rt") as opened:
                return np.loadtxt(opened, delimiter=",")
    with needs("study"):
        from sklearn.datasets import load_digits

    found = load_digits()
    return np.column_stack([found.data, found.target])


def _pairs(part: _Digits, name: str) -> Pixels:
    numbers = stream(0, "digit-pairs", name)
    chosen = torch.randint(len(part.classes), (_PAIRS[name], 2), generator=numbers).numpy()
    images = np.concatenate([part.images[chosen[:, 0]], part.images[chosen[:, 1]]], axis=2)
    labels = np.zeros((len(chosen), 10), np.int64)
    for side in (0, 1):
        labels[np.arange(len(chosen)), part.classes[chosen[:, side]]] = 1
    return as_pixels(images, labels, "digit-pairs")


def _turned(part: _Digits, name: str) -> Pixels:
    from torchvision.transforms.v2 import InterpolationMode
    from torchvision.transforms.v2 import functional as F

    numbers = stream(0, "digit-angles", name)
    turns = 2 * torch.rand(len(part.classes), generator=numbers) - 1
    large = F.resize(torch.from_numpy(part.images)[:, None], [16, 16], antialias=True)
    images = [
        F.rotate(image, float(turn) * MOST_DEGREES, InterpolationMode.BILINEAR)
        for image, turn in zip(large, turns, strict=True)
    ]
    pixels = torch.stack(images)[:, 0].numpy()
    return as_pixels(pixels, turns[:, None].numpy().astype(np.float32), "digit-angles")
