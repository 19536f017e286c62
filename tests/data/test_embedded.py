"""Pairs of digits and turned digits: what they are said to be, and that they can be learned."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_digits

from attnlab.data import DataConfig, load_data
from attnlab.data.embedded import MOST_DEGREES
from attnlab.data.load import read_pixels


def test_pairs_are_two_digits_and_their_labels() -> None:
    train, test, outputs = read_pixels(DataConfig(name="digit-pairs"))
    assert (len(train), len(test), outputs) == (2000, 500, 10)
    assert tuple(train.images.shape[1:]) == (3, 8, 16)
    source = load_digits()
    pixels = (source.images * 255 / 16).round().astype(np.uint8)
    classes_of = zip(pixels, source.target, strict=True)
    known = {image.tobytes(): (int(c), n) for n, (image, c) in enumerate(classes_of)}
    for part, testing in ((train, False), (test, True)):
        for image, labels in zip(part.images[:50, 0], part.targets[:50], strict=True):
            halves = [np.ascontiguousarray(half.numpy()) for half in image.split(8, dim=1)]
            classes, places = zip(*(known[half.tobytes()] for half in halves), strict=True)
            assert labels.nonzero().flatten().tolist() == sorted(set(classes))
            # No digit of a test pair is in a training pair.
            assert all((place % 5 == 4) == testing for place in places)


def test_angles_are_those_that_turn_the_digit_back() -> None:
    """Turned back by its angle the digit is nearer to the original than by any other."""
    from torchvision.transforms.v2 import InterpolationMode
    from torchvision.transforms.v2 import functional as F

    _, test, outputs = read_pixels(DataConfig(name="digit-angles"))
    assert (len(test), outputs, test.targets.dtype) == (359, 1, torch.float32)
    assert test.targets.abs().max() <= 1
    source = torch.from_numpy((load_digits().images[4::5] * 255 / 16).round().astype(np.uint8))
    originals = F.resize(source[:, None], [16, 16], antialias=True).float()
    right = 0
    for image, target, original in zip(test.images[:40], test.targets, originals, strict=False):
        angle = float(target) * MOST_DEGREES
        distances = [
            (F.rotate(image[:1], -turn, InterpolationMode.BILINEAR).float() - original).norm()
            for turn in (angle, angle + 15, angle - 15, -angle)
        ]
        right += int(np.argmin(distances) == 0)
    assert right >= 36


def test_the_same_on_every_machine() -> None:
    # Not to be changed lightly: with these, finished runs of earlier versions would run again.
    sums = {
        name: load_data(DataConfig(name=name)).facts.checksum[:12]
        for name in ("digits", "digit-pairs", "fake")
    }
    assert sums == {
        "digits": "b96e9b36b1df",
        "digit-pairs": "1e53a502dd88",
        "fake": "1ef8fa979ccd",
    }
    turned = load_data(DataConfig(name="digit-angles")).facts.checksum
    assert turned.startswith("turned:b96e9b36b1df")
