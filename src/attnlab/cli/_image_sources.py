"""Images to measure on: a folder, scikit-learn's digits, CIFAR-10, or noise."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from attnlab._errors import InputError

NAMES = ("digits", "cifar10", "fake")
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".ppm")

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Preprocessing(NamedTuple):
    """How an image becomes an input of a network."""

    size: tuple[int, int, int]
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD


def load(
    data: str, preprocessing: Preprocessing, *, root: Path, batch: int, limit: int | None
) -> DataLoader:
    """Batches (images, labels) of `data`: a folder or one of `NAMES`; the first `limit` images.

    `cifar10` (its test images) is looked for in `root` and is never downloaded.
    """
    if data == "digits":
        dataset: Dataset = _digits(preprocessing)
    elif data == "fake":
        generator = torch.Generator().manual_seed(0)
        images = torch.randn(limit or 256, *preprocessing.size, generator=generator)
        dataset = TensorDataset(images, torch.zeros(len(images), dtype=torch.long))
    elif data == "cifar10":
        dataset = _cifar10(preprocessing, root)
    elif Path(data).is_dir():
        dataset = _folder(Path(data), preprocessing)
    else:
        raise InputError(
            f"Expected the data to be a folder of images or one of {', '.join(NAMES)} but got "
            f"{data!r}, which is neither."
        )
    number = len(dataset)  # type: ignore[arg-type]
    if limit is not None and limit < number:
        # Evenly spread, because folders are sorted by class.
        dataset = Subset(dataset, torch.linspace(0, number - 1, limit).round().long().tolist())
    return DataLoader(dataset, batch_size=batch)


def _resized(images: Tensor, preprocessing: Preprocessing) -> Tensor:
    """Images (N, C, H, W) in [0, 1] → the network's size and scale."""
    channels, height, width = preprocessing.size
    if images.shape[1] != channels:
        images = images[:, :1].expand(-1, channels, -1, -1)
    if images.shape[2:] != (height, width):
        images = torch.nn.functional.interpolate(
            images, (height, width), mode="bilinear", antialias=True
        )
    mean = torch.tensor(preprocessing.mean[:channels]).view(-1, 1, 1)
    return (images - mean) / torch.tensor(preprocessing.std[:channels]).view(-1, 1, 1)


def _digits(preprocessing: Preprocessing) -> TensorDataset:
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = torch.from_numpy(digits.images).float().div(16).unsqueeze(1)
    return TensorDataset(_resized(images, preprocessing), torch.from_numpy(digits.target))


def _cifar10(preprocessing: Preprocessing, root: Path) -> Dataset:
    from torchvision.datasets import CIFAR10

    archives = sorted(root.glob("cifar10*.npz"))
    if archives:
        return _archive(archives[0], preprocessing)
    try:
        found = CIFAR10(str(root), train=False, download=False)
    except RuntimeError:
        raise InputError(
            f"There is no CIFAR-10 in {str(root)!r}. Expected torchvision's folder "
            f"'cifar-10-batches-py' or a cifar10*.npz with test_x and test_y there, or another "
            f"root. Nothing is downloaded."
        ) from None
    images = torch.from_numpy(found.data).permute(0, 3, 1, 2).float().div(255)
    return TensorDataset(_resized(images, preprocessing), torch.tensor(found.targets))


def _archive(path: Path, preprocessing: Preprocessing) -> TensorDataset:
    """A numpy archive with test_x (N, 32, 32, 3) uint8 and test_y."""
    expected = "Expected test_x, bytes N×32×32×3, and test_y, one whole number per image."
    try:
        with np.load(path, allow_pickle=False) as archive:
            images, labels = archive["test_x"], archive["test_y"]
    except Exception as error:  # on arbitrary bytes the reader fails with any type of error
        raise InputError(f"Could not read {str(path)!r}: {error}. {expected}") from error
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[-1] != 3:
        raise InputError(f"{str(path)!r}: test_x is {images.dtype} {images.shape}. {expected}")
    if labels.shape != images.shape[:1] or not np.issubdtype(labels.dtype, np.integer):
        raise InputError(f"{str(path)!r}: test_y is {labels.dtype} {labels.shape}. {expected}")
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2).float().div(255)
    return TensorDataset(_resized(pixels, preprocessing), torch.from_numpy(labels).long())


def _folder(folder: Path, preprocessing: Preprocessing) -> Dataset:
    paths = sorted(p for p in folder.rglob("*") if p.suffix.lower() in SUFFIXES)
    if not paths:
        raise InputError(
            f"There is no image in {str(folder)!r}. Expected files that end in "
            f"{', '.join(SUFFIXES)}, in the folder or in one folder per class."
        )
    return _ImageFiles(paths, preprocessing)


class _ImageFiles(Dataset):
    """Image files: the short side resized, the centre cut out. A label is its folder's number."""

    def __init__(self, paths: list[Path], preprocessing: Preprocessing) -> None:
        from torchvision.transforms import v2

        channels, height, width = preprocessing.size
        self.paths = paths
        self.classes = sorted({path.parent.name for path in paths})
        self.mode = "L" if channels == 1 else "RGB"
        self.transform = v2.Compose(
            [
                v2.Resize(max(height, width), antialias=True),
                v2.CenterCrop((height, width)),
                v2.PILToTensor(),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize(preprocessing.mean[:channels], preprocessing.std[:channels]),
            ]
        )

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        from PIL import Image

        path = self.paths[index]
        try:
            with Image.open(path) as image:
                converted = image.convert(self.mode)
        except Exception as error:  # on arbitrary bytes the reader fails with any type of error
            raise InputError(
                f"{str(path)!r} is not a readable image ({error}). Repair it or take it out of "
                f"the folder."
            ) from error
        pixels: Tensor = self.transform(converted)
        return pixels, self.classes.index(path.parent.name)
