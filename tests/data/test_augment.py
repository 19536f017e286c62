"""Augmentation in memory against torchvision, one image at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torchvision.transforms.v2 import functional

from attnlab._errors import InputError
from attnlab.data import Augmentation
from attnlab.data.augment import Draws, cropped, draw, normalised, padded
from attnlab.data.batches import Chunk
from attnlab.data.memory import (
    MemoryData,
    Pixels,
    channel_statistics,
    check_pixels,
    commonest_share,
    lacking_classes,
    subset,
)

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


def in_memory(augmentation: Augmentation, crop: int | None = None) -> MemoryData:
    train = Pixels(some_images(12), torch.arange(12) % 3)
    test = Pixels(some_images(5), torch.tensor([2, 0, 0, 1, 0]))
    statistics = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)
    return MemoryData("made", train, test, 3, "", augmentation, statistics, crop)


@pytest.mark.parametrize(
    ("augmentation", "crop", "border", "side"),
    [
        (Augmentation(), None, 4, 9),
        (Augmentation(crop_padding=1, flip=False), None, 1, 9),
        (Augmentation(crop="none"), None, 0, 9),
        (Augmentation(crop="none", flip=False), 7, 0, 7),
    ],
)
def test_training_batches_are_torchvisions_crops(
    augmentation: Augmentation, crop: int | None, border: int, side: int
) -> None:
    """Image by image, with what was drawn for the epoch; the second epoch as the first."""
    data, images = in_memory(augmentation, crop), some_images(12)
    mean, std = torch.tensor([0.4, 0.5, 0.6]), torch.tensor([0.2, 0.25, 0.3])
    chunks = [Chunk(torch.tensor([5, 0, 11]), 1.0), Chunk(torch.tensor([3]), 1.0)]
    for epoch in (0, 1):
        draws = draw(augmentation, 12, 9 + 2 * border - side, seed=6, epoch=epoch)
        batches = list(data.training(chunks, 6, epoch, torch.device("cpu")))
        assert [batch.targets.tolist() for batch in batches] == [[2, 0, 2], [0]]
        for chunk, batch in zip(chunks, batches, strict=True):
            for found, number in zip(batch.inputs, chunk.images.tolist(), strict=True):
                wide = functional.pad(images[number], [border] * 4, fill=0)
                place = int(draws.top[number]), int(draws.left[number])
                expected = functional.crop(wide, *place, side, side)
                if draws.mirrored[number]:
                    expected = functional.horizontal_flip(expected)
                pixels = expected.float() / 255
                expected = (pixels - mean.view(-1, 1, 1)) / std.view(-1, 1, 1)
                torch.testing.assert_close(found, expected, atol=2e-6, rtol=0)


def test_test_images_stay_as_they_are() -> None:
    data = in_memory(Augmentation())
    (batch,) = data.testing([torch.tensor([4, 1])], torch.device("cpu"))
    torch.testing.assert_close(
        data.facts.pixels(batch.inputs) * 255, some_images(5)[[4, 1]].float()
    )
    assert batch.targets.tolist() == [0, 0]
    assert (data.facts.chance, data.facts.train, data.facts.test) == (3 / 5, 12, 5)
    assert data.facts.shape == (3, 9, 9)


def test_the_border_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def counted(images: torch.Tensor, padding: int) -> torch.Tensor:
        made.append(padding)
        return padded(images, padding)

    monkeypatch.setattr("attnlab.data.memory.padded", counted)
    data = in_memory(Augmentation())
    for epoch in range(3):
        list(data.training([Chunk(torch.arange(2), 1.0)], 0, epoch, torch.device("cpu")))
    assert made == [4]


def test_what_targets_say_of_their_kind() -> None:
    images = some_images(3)
    for targets, kind in (
        (torch.zeros(3, 0).long(), "nothing"),
        (torch.zeros(3, 2), "values"),
        (torch.zeros(3, 1).long(), "labels"),
        (torch.zeros(3).long(), "class"),
    ):
        assert Pixels(images, targets).kind == kind


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (torch.tensor([0, 2, 3]), "label 3 of image 2 is outside (1 of 3 are)."),
        (torch.tensor([-1, 3, 0]), "label -1 of image 0 is outside (2 of 3 are)."),
        (
            torch.tensor([[0, 1], [1, 2], [-1, 0]]),
            "label [1, 2] of image 1 is outside (2 of 3",
        ),
        (torch.tensor([[0.0], [1.0], [float("nan")]]), "label [nan] of image 2 is outside (1 of"),
    ],
)
def test_targets_that_cannot_be(targets: torch.Tensor, message: str) -> None:
    with pytest.raises(InputError) as caught:
        check_pixels(Pixels(some_images(3), targets), 3, "made")
    assert message in str(caught.value)
    check_pixels(Pixels(some_images(3), targets.clamp(0, 1).nan_to_num()), 3, "made")


def test_classes_that_have_no_image() -> None:
    train, test = torch.tensor([0, 1, 3]), torch.tensor([0, 1, 2, 3])
    names = ("a", "b", "c", "d")
    assert lacking_classes(train, test, names, (None, None)) == (
        "1 of 4 classes has no training image: c.",
    )
    assert lacking_classes(test, test[:2], names, (3, 2)) == (
        "2 of 4 classes have no test image (test_subset = 2): c, d.",
    )
    assert lacking_classes(test, test, names, (4, 4)) == ()
    assert commonest_share(torch.tensor([1, 1, 0, 1])) == 0.75


def test_subsets_of_images_without_a_class_are_the_first() -> None:
    whole = Pixels(some_images(5), torch.arange(5.0)[:, None])
    part = subset(whole, 2, "test")
    assert torch.equal(part.images, whole.images[:2])
    assert part.targets.tolist() == [[0.0], [1.0]]
    assert subset(whole, None, "test") is subset(whole, 5, "test") is whole
    with pytest.raises(InputError, match="test has 5 images but a subset of 6 was asked for"):
        subset(whole, 6, "test")
