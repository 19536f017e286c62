"""Where images come from. Nothing is fetched unless `download` says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnlab._errors import InputError, OptionError
from attnlab._seeds import stream
from attnlab.train.config import DataConfig
from attnlab.train.data import Data, MemoryData, Pixels, channel_statistics, subset
from attnlab.train.recipe import Recipe

CIFAR = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
"""Mean and standard deviation that the papers' public code uses, for CIFAR-100 and STL10 too."""
_KEYS = ("train_x", "train_y", "test_x", "test_y")
_TORCHVISION = {"cifar10": ("CIFAR10", 10), "cifar100": ("CIFAR100", 100), "stl10": ("STL10", 10)}


def load_data(config: DataConfig, recipe: Recipe) -> Data:
    """The images of `config`; every problem that can be seen before training is an error here."""
    if config.name == "folder":
        from attnlab.train.folder import load_folder

        return load_folder(config, recipe)
    if recipe.crop == "resized":
        raise OptionError(
            "crop = 'resized' cuts from the original photographs: it is for data 'folder' only. "
            "Use crop = 'padded' or 'none'."
        )
    statistics: Any = None
    if config.name in _TORCHVISION:
        train, test, classes = _torchvision(config)
        statistics = CIFAR
    elif config.name == "npz":
        train, test, classes = _npz(config)
    elif config.name == "hf":
        from attnlab.train.hub import load_hub

        train, test, classes = load_hub(config)
    elif config.name == "fake":
        train, test, classes = _fake(config)
    else:
        train, test, classes = _digits()
    train = subset(train, config.train_subset, f"{config.name} (training)")
    test = subset(test, config.test_subset, f"{config.name} (test)")
    if config.size is not None:
        train, test = _resized(train, config.size), _resized(test, config.size)
    crop = config.stl_crop if config.name == "stl10" and config.size is None else None
    statistics = statistics or channel_statistics(train.images)
    return MemoryData(config.name, train, test, classes, statistics, crop)


def as_pixels(images: np.ndarray, labels: np.ndarray, what: str) -> Pixels:
    """N×H×W×C or N×H×W bytes → N×C×H×W; grey images get three equal channels."""
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or images.shape[-1:] == (2,):
        raise InputError(
            f"{what}: expected images as bytes (uint8), N×H×W×C or N×H×W, but got {images.dtype} "
            f"of shape {images.shape}."
        )
    if not np.issubdtype(labels.dtype, np.integer) or labels.ndim != 1:
        raise InputError(
            f"{what}: expected one whole number per image as label but got {labels.dtype} of "
            f"shape {labels.shape}."
        )
    pixels = torch.from_numpy(np.ascontiguousarray(images))
    pixels = pixels[..., None] if pixels.ndim == 3 else pixels
    pixels = pixels.permute(0, 3, 1, 2)
    if pixels.shape[1] == 1:
        pixels = pixels.expand(-1, 3, -1, -1)
    return Pixels(pixels.contiguous(), torch.from_numpy(labels.astype(np.int64)))


def _digits() -> tuple[Pixels, Pixels, int]:
    """Every fifth image is a test image: 1438 and 359, all ten classes in both."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = (digits.images * (255 / 16)).round().astype(np.uint8)
    testing = np.arange(len(images)) % 5 == 4
    train = as_pixels(images[~testing], digits.target[~testing], "digits")
    return train, as_pixels(images[testing], digits.target[testing], "digits"), 10


def _fake(config: DataConfig) -> tuple[Pixels, Pixels, int]:
    """Noise, brighter in one place per class: something that can be learned, of any size."""

    def some(number: int, purpose: str) -> Pixels:
        numbers = stream(0, "fake", purpose)
        labels = torch.arange(number) % config.classes
        images = torch.randint(128, (number, 3, 32, 32), generator=numbers, dtype=torch.uint8)
        row = (labels * 32 // config.classes)[:, None, None, None]
        return Pixels(images + 100 * (torch.arange(32).view(1, 1, -1, 1) == row).byte(), labels)

    train = some(config.train_subset or 1024, "train")
    return train, some(config.test_subset or 256, "test"), config.classes


def _npz(config: DataConfig) -> tuple[Pixels, Pixels, int]:
    path = Path(_root(config, "the path of a numpy archive, root = 'images.npz'"))
    if not path.is_file():
        raise InputError(f"There is no file {str(path)!r}. Expected a numpy archive (.npz).")
    try:
        with np.load(path, allow_pickle=False) as archive:
            missing = [key for key in _KEYS if key not in archive.files]
            if missing:
                raise InputError(
                    f"{str(path)!r} has no {', '.join(missing)}; it has {', '.join(archive.files)}."
                    f" Expected {', '.join(_KEYS)}."
                )
            arrays = [archive[key] for key in _KEYS]
    except InputError:
        raise
    except Exception as error:  # on arbitrary bytes the reader fails with any type of error
        raise InputError(f"{str(path)!r} is not a readable numpy archive: {error}") from error
    train = as_pixels(arrays[0], arrays[1], f"{path.name} (train)")
    test = as_pixels(arrays[2], arrays[3], f"{path.name} (test)")
    return train, test, int(train.labels.max()) + 1 if len(train) else 0


def _torchvision(config: DataConfig) -> tuple[Pixels, Pixels, int]:
    from torchvision import datasets

    name, classes = _TORCHVISION[config.name]
    root = config.root or "data"
    parts = []
    for part in ("train", "test"):
        which = {"split": part} if name == "STL10" else {"train": part == "train"}
        try:
            found = getattr(datasets, name)(root, download=config.download, **which)
        except RuntimeError as error:
            raise InputError(
                f"There is no whole {name} in {root!r} ({str(error).partition('.')[0]}). Set "
                f"data.root to the folder that holds it, or data.download = true to have "
                f"torchvision fetch it there."
            ) from None
        labels = np.asarray(found.labels if name == "STL10" else found.targets)
        # STL10 is stored with the channels first.
        images = found.data.transpose(0, 2, 3, 1) if name == "STL10" else found.data
        parts.append(as_pixels(images, labels, f"{name} ({part})"))
    return parts[0], parts[1], classes


def _root(config: DataConfig, expected: str) -> str:
    if config.root is None:
        raise OptionError(f"Data {config.name!r} needs {expected}.")
    return config.root


def _resized(pixels: Pixels, size: int) -> Pixels:
    from torchvision.transforms.v2.functional import resize

    if tuple(pixels.images.shape[2:]) == (size, size):
        return pixels
    parts: list[Tensor] = [
        resize(part, [size, size], antialias=True) for part in pixels.images.split(1024)
    ]
    return Pixels(torch.cat(parts), pixels.labels)
