"""Images from folders and by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from attnlab import _errors
from attnlab.data import DataConfig, load_data, load_named
from attnlab.networks.preprocessing import Preprocessing

SIZE = Preprocessing((3, 32, 32), (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))


def all_of(data: str, preprocessing: Preprocessing = SIZE, root: Path = Path()):
    found = load_named(data, root, preprocessing)
    chunks = torch.arange(found.facts.test).split(7)
    images, labels = zip(*found.testing(list(chunks), torch.device("cpu")), strict=True)
    return torch.cat(images), torch.cat(labels)


def paint(path: Path, value: int, size: tuple[int, int] = (40, 50)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (value, value, value)).save(path)


def test_folder_of_classes_and_flat_folder(tmp_path):
    paint(tmp_path / "a" / "1.png", 0)
    paint(tmp_path / "b" / "2.jpg", 255)
    images, labels = all_of(str(tmp_path))
    assert images.shape == (2, 3, 32, 32)
    assert labels.tolist() == [0, 1]
    torch.testing.assert_close(images[0], torch.full((3, 32, 32), -2.0))
    torch.testing.assert_close(images[1], torch.full((3, 32, 32), 2.0), atol=0.05, rtol=0)
    assert len(all_of(str(tmp_path / "a"))[0]) == 1


def test_digits_have_the_size_and_the_statistics_of_the_network():
    images, labels = all_of("digits", Preprocessing((3, 16, 16), SIZE.mean, SIZE.std))
    assert images.shape == (359, 3, 16, 16)
    assert len(set(labels.tolist())) == 10
    own = load_named("digits").facts
    assert own.shape == (3, 8, 8)


def test_grey_images_for_a_network_of_one_channel():
    images, _ = all_of("digits", Preprocessing((1, 8, 8), (0.5,), (0.25,)))
    assert images.shape == (359, 1, 8, 8)
    with pytest.raises(_errors.InputError, match="images of 5 channels, and these have 3"):
        all_of("digits", Preprocessing((5, 8, 8), (0.5,) * 5, (0.25,) * 5))


def test_fake_is_made_in_the_size_of_the_network_and_is_the_same_each_time():
    wide = Preprocessing((3, 20, 24), SIZE.mean, SIZE.std)
    images, _ = all_of("fake", wide)
    assert images.shape == (256, 3, 20, 24)
    assert torch.equal(images, all_of("fake", wide)[0])


def test_cifar10_from_an_archive_is_not_distorted(tmp_path):
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (9, 32, 32, 3), dtype=np.uint8)
    arrays = {"test_x": pixels, "test_y": np.arange(9)}
    np.savez(tmp_path / "cifar10.npz", train_x=pixels, train_y=np.arange(9), **arrays)
    images, labels = all_of("cifar10", root=tmp_path)
    expected = (torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255 - 0.5) / 0.25
    torch.testing.assert_close(images, expected)
    assert labels.tolist() == list(range(9))


def test_messages(tmp_path):
    with pytest.raises(_errors.InputError) as error:
        all_of("digit")
    assert str(error.value).startswith(
        "Expected the data to be a folder of images, an .npz archive or one of digits, "
    )
    assert str(error.value).endswith(
        "but got 'digit', which is none of them. Did you mean 'digits' or 'digit-pairs' or "
        "'digit-angles'?"
    )
    with pytest.raises(_errors.InputError, match="There is no image in"):
        all_of(str(tmp_path))
    with pytest.raises(_errors.InputError, match="There is no whole CIFAR10 in"):
        all_of("cifar10", root=tmp_path)


def test_a_damaged_image_is_named(tmp_path):
    paint(tmp_path / "whole.png", 7)
    content = (tmp_path / "whole.png").read_bytes()
    (tmp_path / "broken.png").write_bytes(content[: len(content) // 2])
    with pytest.raises(_errors.InputError) as error:
        all_of(str(tmp_path))
    assert str(error.value).startswith(
        f"{str(tmp_path / 'broken.png')!r} is not a readable image ("
    )
    assert str(error.value).endswith("). Repair it or take it out of the folder.")


@pytest.mark.parametrize(
    ("arrays", "told"),
    [
        (
            {"test_x": np.zeros((2, 32, 32, 3))},
            "has no test_y; it has train_x, train_y, test_x. Expected train_x, train_y, test_x, "
            "test_y.",
        ),
        (
            {"test_x": np.zeros((2, 32, 32, 3)), "test_y": np.zeros(2, int)},
            "cifar10.npz (test): expected images as bytes (uint8), N×H×W×C or N×H×W, but got "
            "float64 of shape (2, 32, 32, 3).",
        ),
        (
            {"test_x": np.zeros((3, 32, 32, 2), np.uint8), "test_y": np.zeros(3, int)},
            "cifar10.npz (test): expected images as bytes (uint8), N×H×W×C or N×H×W, but got "
            "uint8 of shape (3, 32, 32, 2).",
        ),
    ],
)
def test_an_archive_that_does_not_fit_is_refused(tmp_path, arrays, told):
    whole = {"train_x": np.zeros((2, 32, 32, 3), np.uint8), "train_y": np.arange(2)}
    np.savez(tmp_path / "cifar10.npz", **whole, **arrays)
    with pytest.raises(_errors.InputError) as error:
        all_of("cifar10", root=tmp_path)
    assert str(error.value).endswith(told)


def test_sixteen_bits_are_scaled_and_not_cut_off(tmp_path):
    """A ramp over all 16 bits keeps its shape; Pillow's own conversion makes it white."""
    ramp = np.linspace(0, 65535, 32 * 32).reshape(32, 32).astype(np.uint16)
    Image.fromarray(ramp).save(tmp_path / "ramp.png")
    images, _ = all_of(str(tmp_path))
    expected = (torch.from_numpy(ramp.astype(np.float64)) / 65535 - 0.5) / 0.25
    torch.testing.assert_close(images[0, 0].double(), expected, atol=0.01, rtol=0)


def test_pixels_of_unknown_range_are_refused(tmp_path):
    Image.fromarray(np.ones((8, 8), np.float32)).save(tmp_path / "float.tif")
    with pytest.raises(_errors.InputError) as error:
        all_of(str(tmp_path))
    assert str(error.value) == (
        f"{str(tmp_path / 'float.tif')!r} has pixels of 32 bits (mode F), whose range is not "
        f"known. Expected 8 or 16 bits per channel: convert it first."
    )


def test_labels_of_another_number_are_refused(tmp_path):
    arrays = {"test_x": np.zeros((2, 32, 32, 3), np.uint8), "test_y": np.zeros(3, int)}
    whole = {"train_x": np.zeros((2, 32, 32, 3), np.uint8), "train_y": np.arange(2)}
    np.savez(tmp_path / "cifar10.npz", **whole, **arrays)
    with pytest.raises(_errors.InputError) as error:
        all_of("cifar10", root=tmp_path)
    assert str(error.value) == (
        "cifar10 (test): expected as many labels as images, at least one, but got 2 images and 3 "
        "labels."
    )


class Deep(torch.utils.data.Dataset):
    """Pillow's 16-bit images, as a data set of the user's own gives them."""

    def __init__(self, train: bool) -> None:
        assert isinstance(train, bool)
        self.ramp = np.linspace(0, 65535, 64).reshape(8, 8).astype(np.uint16)

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        return Image.fromarray(self.ramp), index


def test_sixteen_bits_of_the_users_own_data_are_scaled(monkeypatch):
    from attnlab.data.own import load_own

    monkeypatch.setattr("attnlab.data.own.imported", lambda *_: Deep)
    train, _, outputs = load_own(DataConfig(name="mine.Deep"))
    expected = torch.from_numpy(np.linspace(0, 255, 64).reshape(8, 8))
    assert (train.images[0, 0].double() - expected).abs().max() < 1
    assert outputs == 2


def test_a_picture_that_would_fill_the_memory_is_named(tmp_path, monkeypatch):
    """Both of Pillow's limits: where it warns, and where it refuses."""
    paint(tmp_path / "bomb.png", 7, (40, 50))
    for limit in (1500, 500):  # of 2000 pixels; it refuses from twice the limit on
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
        with pytest.raises(_errors.InputError) as error:
            all_of(str(tmp_path))
        told = str(error.value)
        assert told.startswith(f"{str(tmp_path / 'bomb.png')!r} is not a readable image (Image si")
        assert told.endswith("). Repair it or take it out of the folder.")


def test_one_channel_is_the_brightness_and_others_are_refused(tmp_path):
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)
    labels = np.arange(3)
    arrays = {"train_x": pixels, "train_y": labels, "test_x": pixels, "test_y": labels}
    np.savez(tmp_path / "cifar10.npz", **arrays)
    images, _ = all_of("cifar10", Preprocessing((1, 32, 32), (0.0,), (1.0,)), root=tmp_path)
    weights = np.array([0.299, 0.587, 0.114])  # ITU-R 601, as for image files
    np.testing.assert_allclose(images[:, 0].numpy(), pixels @ weights / 255, atol=1.1 / 255)
    paint(tmp_path / "one.png", 7)
    for data in ("cifar10", str(tmp_path)):
        with pytest.raises(_errors.InputError, match=r"takes images of 4 channels, and .* have 3"):
            all_of(data, Preprocessing((4, 32, 32), (0.0,) * 4, (1.0,) * 4), root=tmp_path)


def archive(path: Path, **changes: np.ndarray) -> DataConfig:
    rng = np.random.default_rng(0)
    arrays = {
        "train_x": rng.integers(0, 256, (6, 8, 8, 3), dtype=np.uint8),
        "train_y": np.arange(6) % 3,
        "test_x": rng.integers(0, 256, (3, 8, 8, 3), dtype=np.uint8),
        "test_y": np.arange(3),
    }
    np.savez(path / "own.npz", **{**arrays, **changes})
    return DataConfig(name="npz", root=str(path / "own.npz"))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"test_x": np.zeros((3, 8, 8, 4), np.uint8)},
            "own: expected test images with 3 channels like the training images but got 4.",
        ),
        (
            {"train_y": np.array([0, 1, 2, 10**9, 1, 2])},
            "own.npz (train): label 1000000000 of image 3 would mean 1,000,000,001 classes, more "
            "than the 6 images. Expected classes that are numbered from 0, each with at least one "
            "image.",
        ),
        (
            {"test_y": np.array([0, 1, 10**9])},
            "own (test): expected labels from 0 to 2 but label 1000000000 of image 2 is outside "
            "(1 of 3 are).",
        ),
    ],
)
def test_an_archive_whose_parts_do_not_fit(tmp_path, changes, told):
    with pytest.raises(_errors.InputError) as error:
        load_data(archive(tmp_path, **changes))
    assert str(error.value) == told
    assert load_data(archive(tmp_path)).facts.outputs == 3
