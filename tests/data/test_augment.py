"""Augmentation in memory against torchvision, one image at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torchvision.transforms.v2 import functional

from attnlab.data import Augmentation
from attnlab.data.augment import Draws, cropped, draw, normalised, padded
from attnlab.data.memory import Pixels, channel_statistics, subset

PADDED = Augmentation()


def some_images(number: int = 20, side: int = 9) -> torch.Tensor:
    numbers = torch.Generator().manual_seed(0)
    return torch.randint(256, (number, 3, side, side), generator=numbers, dtype=torch.uint8)


def test_crop_and_mirror_are_torchvisions() -> None:
    images = some_images()
    draws = draw(PADDED, 20, 8, seed=0, epoch=0)
    chosen = torch.tensor([3, 19, 0, 3, 7])
    ours = cropped(padded(images, 4), chosen, draws.of(chosen), (9, 9))
    for crop, number in zip(ours, chosen.tolist(), strict=True):
        wide = functional.pad(images[number], [4, 4, 4, 4], fill=0)
        top, left = int(draws.top[number]), int(draws.left[number])
        expected = functional.crop(wide, top, left, 9, 9)
        if draws.mirrored[number]:
            expected = functional.horizontal_flip(expected)
        assert torch.equal(crop, expected)


def test_crops_reach_every_offset_evenly_and_half_are_mirrored() -> None:
    draws = draw(PADDED, 90_000, 8, seed=1, epoch=0)
    places = torch.bincount(draws.top * 9 + draws.left, minlength=81)
    # 81 cells of a mean of 1111: five standard deviations.
    assert (places - 90_000 / 81).abs().max() < 5 * (90_000 / 81) ** 0.5
    assert draws.mirrored.double().mean().item() == pytest.approx(0.5, abs=0.01)


def test_draws_change_with_seed_and_epoch_and_nothing_else() -> None:
    def tops(seed: int, epoch: int) -> list[int]:
        return draw(PADDED, 50, 8, seed, epoch).top.tolist()

    assert tops(0, 0) == tops(0, 0)
    assert tops(0, 0) != tops(0, 1)
    assert tops(0, 0) != tops(1, 0)


def test_digits_are_never_mirrored() -> None:
    straight = PADDED.model_copy(update={"flip": False})
    assert not draw(straight, 1000, 2, 0, 0).mirrored.any()


def test_without_a_border_the_image_comes_back() -> None:
    images, all_of = some_images(), torch.arange(20)
    nothing = Draws(torch.zeros(20).long(), torch.zeros(20).long(), torch.zeros(20).bool())
    assert torch.equal(cropped(padded(images, 0), all_of, nothing, (9, 9)), images)


def test_normalised_is_the_formula() -> None:
    images = some_images()
    mean, std = torch.tensor([0.4, 0.5, 0.6]), torch.tensor([0.2, 0.25, 0.3])
    pixels = images.numpy().astype(np.float64) / 255
    expected = (pixels - mean.double().numpy()[:, None, None]) / std.double().numpy()[:, None, None]
    ours = normalised(images, mean, std)
    assert ours.dtype == torch.float32
    np.testing.assert_allclose(ours.numpy(), expected, atol=2e-6)


def test_channel_statistics_are_numpys() -> None:
    images = some_images(31, 7)
    pixels = images.numpy().astype(np.float64) / 255
    mean, std = channel_statistics(images)
    np.testing.assert_allclose(mean, pixels.mean((0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(std, pixels.std((0, 2, 3)), rtol=1e-10)


def test_a_subset_has_the_same_share_of_every_class() -> None:
    labels = torch.tensor([0] * 40 + [1] * 40 + [2] * 20)
    whole = Pixels(some_images(100, 2), labels)
    part = subset(whole, 10, "test")
    assert torch.bincount(part.targets).tolist() == [4, 4, 2]
    # The first of each class, in order.
    kept = [0, 1, 2, 3, 40, 41, 42, 43, 80, 81]
    assert torch.equal(part.images, whole.images[kept])
