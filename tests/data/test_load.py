"""Where images come from: what is right, and what is said when it is not."""

from __future__ import annotations

import pickle
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

from attnlab._errors import InputError, OptionError
from attnlab.data import Data, DataConfig, data_checksum, load_data, stream
from attnlab.data import folder as folders
from attnlab.data.batches import shuffled, training_chunks
from attnlab.data.known import CIFAR
from attnlab.lab.training import Recipe

CPU = torch.device("cpu")
RECIPE = Recipe(epochs=1, batch_size=4, lr=0.1)


def load(**settings: Any) -> Data:
    return load_data(DataConfig(**settings))


def pixels_of(data: Data, number: int) -> np.ndarray:
    """Test images as bytes again."""
    images, _ = next(data.testing([torch.arange(number)], CPU))
    mean, std = (torch.tensor(v).view(-1, 1, 1) for v in (data.facts.mean, data.facts.std))
    return ((images * std + mean) * 255).round().byte().numpy()


def test_digits() -> None:
    data = load(name="digits")
    assert (data.facts.train, data.facts.test, data.facts.outputs) == (1438, 359, 10)
    assert data.facts.shape == (3, 8, 8)
    source = load_digits()
    expected = (source.images[4::5] * 255 / 16).round()
    assert np.array_equal(pixels_of(data, 359)[:, 0], expected)
    _, labels = next(data.testing([torch.arange(359)], CPU))
    assert np.array_equal(labels.numpy(), source.target[4::5])


def test_size_and_subset() -> None:
    data = load(name="digits", size=16, train_subset=50, test_subset=20)
    assert (data.facts.train, data.facts.test, data.facts.shape) == (50, 20, (3, 16, 16))
    chunks = training_chunks(shuffled(50, 0, 0), RECIPE)
    images, labels = next(data.training(chunks, 0, 0, CPU))
    assert images.shape == (4, 3, 16, 16)
    assert images.dtype == torch.float32
    assert labels.dtype == torch.int64


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "stl10"])
def test_the_checksum_is_known_without_the_files_of_well_known_data(name: str) -> None:
    from torchvision import datasets

    published = getattr(datasets, name.upper()).tgz_md5
    assert data_checksum(DataConfig(name=name, root="nowhere")) == f"md5:{published}"


def test_the_checksum_of_a_folder_is_its_content_wherever_it_lies(tmp_path: Path) -> None:
    pictures(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")

    def checksum(name: str) -> str:
        return data_checksum(DataConfig(name="folder", root=str(tmp_path / name), size=12))

    before = checksum("a")
    assert checksum("b") == before
    (tmp_path / "b" / "train" / "cat" / "3.png").unlink()
    assert checksum("b") != before
    (tmp_path / "a" / "val" / "dog" / "0.png").rename(tmp_path / "a" / "val" / "cat" / "9.png")
    assert checksum("a") != before  # the same pictures, one of them with another class


def test_the_checksum_sees_one_pixel(tmp_path: Path) -> None:
    arrays = archive(tmp_path / "a.npz")
    arrays["test_x"][3, 2, 1, 0] ^= 1
    np.savez(tmp_path / "b.npz", **arrays)
    sums = [load(name="npz", root=str(tmp_path / f"{n}.npz")).facts.checksum for n in "aab"]
    assert sums[0] == sums[1] != sums[2]


def archive(path: Path, **changed: np.ndarray) -> dict[str, np.ndarray]:
    numbers = np.random.default_rng(0)
    arrays = {
        "train_x": numbers.integers(0, 256, (12, 6, 6, 3), dtype=np.uint8),
        "train_y": np.arange(12) % 3,
        "test_x": numbers.integers(0, 256, (6, 6, 6, 3), dtype=np.uint8),
        "test_y": np.arange(6) % 3,
        **changed,
    }
    np.savez(path, **arrays)
    return arrays


def test_npz(tmp_path: Path) -> None:
    arrays = archive(tmp_path / "images.npz")
    data = load(name="npz", root=str(tmp_path / "images.npz"))
    assert data.facts.outputs == 3
    assert np.array_equal(pixels_of(data, 6), arrays["test_x"].transpose(0, 3, 1, 2))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"test_y": np.array([0, 1, 2, 3, 0, 7])},
            "images (test): expected labels from 0 to 2 but label 3 of image 3 is outside (2 of 6 "
            "are).",
        ),
        (
            {"train_y": np.array([0, -1] * 6)},
            "images (training): expected labels from 0 to 0 but label -1 of image 1 is outside (6 "
            "of 12 are).",
        ),
        (
            {"test_y": np.zeros(5, np.int64)},
            "images (test): expected as many labels as images, at least one, but got 6 images and "
            "5 labels.",
        ),
        (
            {"train_x": np.zeros((12, 6, 6, 3), np.float32)},
            "images.npz (train): expected images as bytes (uint8), N×H×W×C or N×H×W, but got "
            "float32 of shape (12, 6, 6, 3).",
        ),
        (
            {"train_y": np.zeros(12)},
            "images.npz (train): expected one whole number per image as label (or a row of 0 and 1 "
            "as labels, or a row of floating-point numbers as values) but got float64 of shape "
            "(12,).",
        ),
    ],
)
def test_wrong_archives(changed: dict[str, np.ndarray], message: str, tmp_path: Path) -> None:
    archive(tmp_path / "images.npz", **changed)
    with pytest.raises(InputError) as caught:
        load(name="npz", root=str(tmp_path / "images.npz"))
    assert str(caught.value) == message


def test_archives_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "images.npz"
    with pytest.raises(InputError, match="There is no file"):
        load(name="npz", root=str(path))
    path.write_bytes(b"not an archive")
    with pytest.raises(InputError, match="is not a readable numpy archive"):
        load(name="npz", root=str(path))
    np.savez(path, train_x=np.zeros(3))
    with pytest.raises(InputError, match=r"has no train_y, test_x, test_y; it has train_x\."):
        load(name="npz", root=str(path))
    with pytest.raises(OptionError, match="Data 'npz' needs the path of a numpy archive"):
        load(name="npz")


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "stl10"])
def test_nothing_is_fetched_unless_asked(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load(name=name, root=str(tmp_path))
    assert str(caught.value) == (
        f"There is no whole {name.upper()} in {str(tmp_path)!r} (Dataset not found or corrupted), "
        f"and no {name}*.npz. Set data.root (--root) to the folder that holds it, or "
        f"data.download = true to have torchvision fetch it there."
    )


def test_cifar10_in_torchvisions_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torchvision.datasets import CIFAR10

    monkeypatch.setattr(CIFAR10, "_check_integrity", lambda _: True)
    monkeypatch.setattr(CIFAR10, "meta", {**CIFAR10.meta, "md5": None})
    folder = tmp_path / CIFAR10.base_folder
    folder.mkdir()
    numbers = np.random.default_rng(0)
    pixels = numbers.integers(0, 256, (6, 20, 3072), dtype=np.uint8)
    names = [f"data_batch_{n}" for n in range(1, 6)] + ["test_batch"]
    for name, part in zip(names, pixels, strict=True):
        content = {"data": part, "labels": [n % 10 for n in range(20)]}
        (folder / name).write_bytes(pickle.dumps(content))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": list("0123456789")}))
    data = load(name="cifar10", root=str(tmp_path))
    assert (data.facts.train, data.facts.test, data.facts.shape) == (100, 20, (3, 32, 32))
    assert (data.facts.mean, data.facts.std) == CIFAR
    assert np.array_equal(pixels_of(data, 20), pixels[5].reshape(20, 3, 32, 32))


@pytest.mark.parametrize("crop", [32, 96])
def test_stl10_trains_on_crops_and_tests_whole(crop: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from torchvision import datasets

    class Small:
        def __init__(self, *_: object, **__: object) -> None:
            self.data = np.zeros((20, 3, 96, 96), np.uint8)
            self.labels = np.arange(20) % 10

    monkeypatch.setattr(datasets, "STL10", Small)
    data = load(name="stl10", stl_crop=crop)
    images, _ = next(data.training(training_chunks(shuffled(20, 0, 0), RECIPE), 0, 0, CPU))
    assert images.shape == (4, 3, crop, crop)
    assert next(data.testing([torch.arange(2)], CPU))[0].shape == (2, 3, 96, 96)


def pictures(root: Path, side: int = 12) -> None:
    numbers = np.random.default_rng(0)
    for part, number in (("train", 4), ("val", 2)):
        for name in ("cat", "dog"):
            (root / part / name).mkdir(parents=True)
            for index in range(number):
                pixels = numbers.integers(0, 256, (side, side + 4, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(root / part / name / f"{index}.png")


def test_a_folder_in_memory_is_the_centre_of_its_pictures(tmp_path: Path) -> None:
    pictures(tmp_path)
    data = load(name="folder", root=str(tmp_path), size=12)
    assert (data.facts.outputs, data.facts.train, data.facts.test) == (2, 8, 4)
    expected = np.asarray(Image.open(tmp_path / "val" / "dog" / "0.png"))[:, 2:14]
    assert np.array_equal(pixels_of(data, 4)[2], expected.transpose(2, 0, 1))


def test_a_folder_too_large_for_memory_gives_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures(tmp_path)
    monkeypatch.setattr("os.cpu_count", lambda: 1)  # read in this process
    whole = load(name="folder", root=str(tmp_path), size=12)
    monkeypatch.setattr(folders, "MEMORY_LIMIT", 0)
    streamed = load(name="folder", root=str(tmp_path), size=12)
    assert isinstance(streamed, stream.StreamData)
    assert np.array_equal(pixels_of(whole, 4), pixels_of(streamed, 4))
    resized = load(name="folder", root=str(tmp_path), size=12, augmentation={"crop": "resized"})
    chunks = training_chunks(shuffled(8, 0, 0), RECIPE)
    first, again, later = (
        torch.cat([images for images, _ in resized.training(chunks, 0, epoch, CPU)])
        for epoch in (0, 0, 1)
    )
    assert first.shape == (8, 3, 12, 12)
    assert torch.equal(first, again)
    assert not torch.equal(first, later)


def test_a_corrupt_picture_is_named_before_training(tmp_path: Path) -> None:
    pictures(tmp_path)
    broken = tmp_path / "train" / "dog" / "2.png"
    broken.write_bytes(broken.read_bytes()[:200])
    with pytest.raises(InputError, match=r"train/dog/2.png' is not a readable image \("):
        load(name="folder", root=str(tmp_path), size=12)


def test_options_are_refused_where_there_are_none() -> None:
    own = DataConfig(name="my_data.Photos", options={"year": 2012})
    assert own.options == {"year": 2012}
    with pytest.raises(OptionError, match=r"your own data set .*; 'digits' has none"):
        DataConfig(name="digits", options={"year": 2012})


def test_wrong_folders(tmp_path: Path) -> None:
    where = {"name": "folder", "root": str(tmp_path / "x"), "size": 8}
    with pytest.raises(InputError, match="There is no folder"):
        load(**where)
    (tmp_path / "x" / "training").mkdir(parents=True)
    with pytest.raises(InputError) as caught:
        load(**where)
    assert str(caught.value) == (
        f"Expected folders train and test (or val) in {str(tmp_path / 'x')!r}, each with one "
        f"folder per class, but found training."
    )
    pictures(tmp_path / "y")
    (tmp_path / "y" / "val" / "bird").mkdir()
    with pytest.raises(InputError, match="classes that the training images do not have: bird"):
        load(name="folder", root=str(tmp_path / "y"), size=8)
    (tmp_path / "z" / "train" / "cat").mkdir(parents=True)
    (tmp_path / "z" / "test" / "cat").mkdir(parents=True)
    with pytest.raises(InputError, match="There is no image in"):
        load(name="folder", root=str(tmp_path / "z"), size=8)
    with pytest.raises(OptionError, match="needs the side of the images, size = 224"):
        load(name="folder", root=str(tmp_path / "y"))
    with pytest.raises(OptionError, match="crop = 'resized' cuts from the original photographs"):
        load(name="digits", augmentation={"crop": "resized"})
    with pytest.raises(InputError, match="has 1438 images but a subset of 2000 was asked for"):
        load(name="digits", train_subset=2000)


def test_without_datasets_the_message_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(OptionError, match="pip install datasets"):
        load(name="hf", root="cifar10")
