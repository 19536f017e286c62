"""Images from folders and by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import attnlab
from attnlab import _errors
from attnlab.data import Preprocessing, image_batches, images_for
from attnlab.measure import images_of_run

SIZE = Preprocessing((3, 32, 32), (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))


def all_of(data: str, preprocessing: Preprocessing = SIZE, root: Path = Path(), limit=None):
    loader = image_batches(data, preprocessing, root=root, batch=7, limit=limit)
    images, labels = zip(*loader, strict=True)
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


def test_digits():
    images, labels = all_of("digits", Preprocessing((3, 16, 16)), limit=20)
    assert images.shape == (20, 3, 16, 16)
    assert len(set(labels.tolist())) > 3


def test_fake_is_the_same_each_time():
    assert torch.equal(all_of("fake", limit=5)[0], all_of("fake", limit=5)[0])


def test_cifar10_from_an_archive_is_not_distorted(tmp_path):
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (9, 32, 32, 3), dtype=np.uint8)
    np.savez(tmp_path / "cifar10.npz", test_x=pixels, test_y=np.arange(9))
    images, labels = all_of("cifar10", root=tmp_path)
    expected = (torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255 - 0.5) / 0.25
    torch.testing.assert_close(images, expected)
    assert labels.tolist() == list(range(9))


def test_messages(tmp_path):
    with pytest.raises(_errors.InputError) as error:
        all_of("digit")
    assert str(error.value) == (
        "Expected the data to be a folder of images or one of digits, cifar10, fake but got "
        "'digit', which is neither."
    )
    with pytest.raises(_errors.InputError, match="There is no image in"):
        all_of(str(tmp_path))
    with pytest.raises(_errors.InputError, match="Nothing is downloaded"):
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
            "has no test_y; it has test_x. Expected test_x, test_y.",
        ),
        (
            {"test_x": np.zeros((2, 32, 32, 3)), "test_y": np.zeros(2, int)},
            "cifar10.npz (test): expected images as bytes (uint8), N×H×W×C or N×H×W, but got "
            "float64 of shape (2, 32, 32, 3).",
        ),
    ],
)
def test_an_archive_that_does_not_fit_is_refused(tmp_path, arrays, told):
    np.savez(tmp_path / "cifar10.npz", **arrays)
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
    np.savez(tmp_path / "cifar10.npz", **arrays)
    with pytest.raises(_errors.InputError) as error:
        all_of("cifar10", root=tmp_path)
    assert str(error.value) == (
        "cifar10.npz (test): expected as many labels as images, at least one, but got 2 images and "
        "3 labels."
    )


def test_images_are_as_the_network_takes_them(tmp_path):
    paint(tmp_path / "grey.png", 51)  # a fifth of white
    network = attnlab.create("resnet20")
    ((images, _),) = images_for(network, str(tmp_path))
    assert images.shape == (1, 3, 32, 32)
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    torch.testing.assert_close(images[0, :, 7, 7], (0.2 - mean) / std)
    timm = attnlab.create("timm:vit_tiny_patch16_224")  # mean and deviation are 0.5
    ((images, _),) = images_for(timm, str(tmp_path))
    torch.testing.assert_close(images, torch.full((1, 3, 224, 224), -0.6))
    assert next(iter(images_for(network, size=16, limit=5)))[0].shape == (5, 3, 16, 16)
    assert next(iter(images_for(network, size=[1, 8, 6], batch=2)))[0].shape == (2, 1, 8, 6)


def test_a_folder_that_is_not_a_run(tmp_path):
    with pytest.raises(_errors.InputError) as error:
        images_of_run(tmp_path)
    assert str(error.value) == (
        f"There is no {str(tmp_path / 'config.json')!r}, so {str(tmp_path)!r} is not a run's "
        f"folder."
    )
