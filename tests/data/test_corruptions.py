"""Corruptions against what they say they are: moments, Pillow, arithmetic."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance

from attnlab._errors import OptionError, UnknownNameError
from attnlab.data import DataConfig, load_data
from attnlab.data.batches import Batch, Facts
from attnlab.data.corruptions import CORRUPTIONS, STRENGTHS, CorruptedData, corrupted

GREY = torch.full((200, 3, 8, 8), 128, dtype=torch.uint8)
NUMBERS = torch.arange(200)


def photographs(number: int = 3) -> torch.Tensor:
    """Smooth colours, so that compression and blur do something and not everything."""
    y, x = torch.meshgrid(torch.arange(32.0), torch.arange(32.0), indexing="ij")
    waves = [torch.stack([(x * k + y), (x - y * k), x * y / 32]) for k in range(1, number + 1)]
    return ((torch.stack(waves) / 5).sin() * 100 + 128).to(torch.uint8)


@pytest.mark.parametrize("name", list(CORRUPTIONS))
def test_stronger_is_further_away_and_everything_stays_an_image(name: str) -> None:
    images = photographs()
    distances = []
    for strength in STRENGTHS:
        found = corrupted(images, name, strength, torch.arange(3))
        assert (found.dtype, found.shape) == (torch.uint8, images.shape)
        distances.append(float((found.float() - images).square().mean()))
    if name != "pixelate":  # whose pixels fall on the image's own at some sizes
        assert distances == sorted(distances)
    assert 0 < distances[0] < distances[-1]


def test_noise_has_the_stated_moments() -> None:
    clean = 128 / 255
    found = corrupted(GREY, "gaussian_noise", 3, NUMBERS).double() / 255
    assert float(found.mean()) == pytest.approx(clean, abs=0.002)
    assert float(found.std()) == pytest.approx(0.08, abs=0.001)
    found = corrupted(GREY, "shot_noise", 3, NUMBERS).double() / 255
    assert float(found.mean()) == pytest.approx(clean, abs=0.002)
    assert float(found.std()) == pytest.approx((clean / 100) ** 0.5, abs=0.001)
    found = corrupted(GREY, "impulse_noise", 5, NUMBERS)
    assert float((found == 0).double().mean()) == pytest.approx(0.035, abs=0.004)
    assert float((found == 255).double().mean()) == pytest.approx(0.035, abs=0.004)


def test_light_is_that_of_pillow() -> None:
    image = photographs(1)
    picture = Image.fromarray(image[0].permute(1, 2, 0).numpy())

    def away(found: torch.Tensor, expected: Image.Image) -> float:
        other = torch.from_numpy(np.array(expected)).permute(2, 0, 1).float()
        return float((found[0].float() - other).abs().max())

    number = torch.zeros(1)
    bright = ImageEnhance.Brightness(picture).enhance(1.5)
    assert away(corrupted(image, "brightness", 4, number), bright) <= 1
    flat = ImageEnhance.Contrast(picture).enhance(0.3)
    assert away(corrupted(image, "contrast", 4, number), flat) <= 2


def test_compression_is_that_of_torchvision() -> None:
    from torchvision.transforms.v2 import functional as F

    image = photographs(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        expected = F.jpeg(image[0], 15)
    found = corrupted(image, "jpeg", 5, torch.zeros(1))[0]
    assert int((found.int() - expected.int()).abs().max()) <= 1


def test_blur_of_a_point_is_a_gaussian() -> None:
    image = torch.zeros(1, 3, 17, 17, dtype=torch.uint8)
    image[..., 8, 8] = 255
    found = corrupted(image, "gaussian_blur", 4, torch.zeros(1))[0, 0].double()
    assert float(found[8, 8]) == pytest.approx(255 / (2 * np.pi), abs=1)
    assert float(found[8, 9] / found[8, 8]) == pytest.approx(np.exp(-0.5), abs=0.02)


def test_blur_reaches_four_deviations_or_to_the_other_side() -> None:
    """Not further: images may be smaller than the blur."""
    image = torch.zeros(1, 3, 17, 17, dtype=torch.uint8)
    image[..., 8, 8] = 255
    for strength, sigma in ((1, 0.4), (5, 1.2)):
        found = corrupted(image, "gaussian_blur", strength, torch.zeros(1))[0, 0].double()
        far = torch.arange(17) - 8
        line = torch.exp(-(far**2).double() / (2 * sigma**2))
        line[far.abs() > round(4 * sigma)] = 0
        wanted = 255 * torch.outer(line, line) / line.sum() ** 2
        torch.testing.assert_close(found, wanted, atol=0.51, rtol=0)
    tiny = torch.full((1, 3, 2, 9), 100, dtype=torch.uint8)
    assert torch.equal(corrupted(tiny, "gaussian_blur", 5, torch.zeros(1)), tiny)


def test_pixels_of_a_tiny_image_stay() -> None:
    tiny = torch.full((1, 3, 1, 1), 7, dtype=torch.uint8)
    assert torch.equal(corrupted(tiny, "pixelate", 5, torch.zeros(1)), tiny)


def test_strengths_are_from_one_to_five() -> None:
    for strength in (0, 6, -1):
        with pytest.raises(OptionError, match=f"strength from 1 to 5 but got {strength}"):
            corrupted(GREY[:1], "jpeg", strength, NUMBERS[:1])
    assert STRENGTHS == (1, 2, 3, 4, 5)


def test_pixels_repeat() -> None:
    found = corrupted(photographs(), "pixelate", 5, torch.arange(3))
    assert len(found[0, 0].unique(dim=1)[0]) == round(32 * 0.4)


def test_what_is_drawn_depends_on_the_image_and_not_on_the_batch() -> None:
    data = load_data(DataConfig(name="digits"))
    device = torch.device("cpu")
    under = CorruptedData(data, "gaussian_noise", 5)
    whole = next(under.testing([torch.arange(6)], device)).inputs
    parts = [batch.inputs for batch in under.testing([torch.arange(4), torch.arange(4, 6)], device)]
    assert torch.equal(torch.cat(parts), whole)
    other = CorruptedData(data, "gaussian_noise", 5, seed=1)
    assert not torch.equal(next(other.testing([torch.arange(6)], device)).inputs, whole)
    clean = next(data.testing([torch.arange(6)], device)).inputs
    assert not torch.equal(whole, clean)


def test_images_are_corrupted_as_pixels_whatever_they_were_normalised_by() -> None:
    """Brightness of pixels that a network sees as (pixel − mean) / std."""
    mean, std = (0.2, 0.4, 0.6), (0.5, 0.25, 0.1)
    photos = photographs(2)
    scale, shift = (torch.tensor(each).view(-1, 1, 1) for each in (std, mean))

    class Normalised:
        facts = Facts("two", "nothing", 0, photos.shape[1:], 0, 2, mean, std, "")

        def testing(self, chunks, _device):
            for _ in chunks:
                yield Batch((photos / 255 - shift) / scale, torch.zeros(2))

    seen = next(CorruptedData(Normalised(), "brightness", 3).testing([torch.arange(2)], "cpu"))
    expected = corrupted(photos, "brightness", 3, torch.arange(2))
    torch.testing.assert_close((seen.inputs * scale + shift) * 255, expected.float())


def test_errors() -> None:
    with pytest.raises(UnknownNameError) as unknown:
        corrupted(GREY, "jpg", 1, NUMBERS)
    assert str(unknown.value).startswith("Unknown corruption 'jpg'. Did you mean 'jpeg'?")
    with pytest.raises(OptionError) as wrong:
        corrupted(GREY, "jpeg", 6, NUMBERS)
    assert str(wrong.value) == "Expected a strength from 1 to 5 but got 6."
