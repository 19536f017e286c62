"""Folders of photographs, one per class: read into memory where they fit, else as they are used."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from attnlab._errors import InputError, OptionError
from attnlab._seeds import derive
from attnlab.train.augment import normalised
from attnlab.train.batches import Chunk
from attnlab.train.config import DataConfig
from attnlab.train.data import Batch, Data, Facts, MemoryData, Pixels
from attnlab.train.recipe import Recipe

IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".pgm", ".tif", ".tiff")
MEMORY_LIMIT = 4 * 2**30
"""Bytes of pixels up to which a folder is read into memory."""
_OPENED_FIRST = 20_000
_TEST_CROP = 0.875
"""Of the short side, where training cuts random parts: 224 of 256, as is usual on ImageNet."""


def load_folder(config: DataConfig, recipe: Recipe) -> Data:
    """`root`/train/CLASS/… and `root`/test/CLASS/… (or val)."""
    if config.root is None:
        raise OptionError("Data 'folder' needs its folder, root = 'path/of/images'.")
    if config.size is None:
        raise OptionError("Data 'folder' needs the side of the images, size = 224 for example.")
    root = Path(config.root)
    if not root.is_dir():
        raise InputError(f"There is no folder {str(root)!r}.")
    testing = next((root / name for name in ("test", "val") if (root / name).is_dir()), None)
    if not (root / "train").is_dir() or testing is None:
        found = ", ".join(sorted(p.name for p in root.iterdir() if p.is_dir())) or "no folder"
        raise InputError(
            f"Expected folders train and test (or val) in {str(root)!r}, each with one folder per "
            f"class, but found {found}."
        )
    classes = sorted(p.name for p in (root / "train").iterdir() if p.is_dir())
    train = _files(root / "train", classes, config.train_subset)
    test = _files(testing, classes, config.test_subset)
    needed = 3 * config.size**2 * (len(train) + len(test))
    if recipe.crop != "resized" and needed <= MEMORY_LIMIT:
        parts = [_read(files, config.size) for files in (train, test)]
        return MemoryData("folder", parts[0], parts[1], len(classes), IMAGENET)
    _open_some(train + test)
    share = _TEST_CROP if recipe.crop == "resized" else 1.0
    return FolderData(root, train, test, len(classes), config.size, share)


_File = tuple[Path, int]


def _files(folder: Path, classes: Sequence[str], limit: int | None) -> list[_File]:
    unknown = sorted(p.name for p in folder.iterdir() if p.is_dir() and p.name not in classes)
    if unknown:
        raise InputError(
            f"{str(folder)!r} has classes that the training images do not have: "
            f"{', '.join(unknown[:5])}. Expected the folders {', '.join(classes[:5])}, …"
        )
    found = [
        (path, number)
        for number, name in enumerate(classes)
        for path in sorted((folder / name).rglob("*"))
        if path.suffix.lower() in SUFFIXES
    ]
    if not found:
        raise InputError(
            f"There is no image in {str(folder)!r}. Expected one folder per class with files that "
            f"end in {', '.join(SUFFIXES)}."
        )
    if limit is not None and limit < len(found):
        # Evenly spread, which is the same share of every class: they are sorted by class.
        return [found[i] for i in torch.linspace(0, len(found) - 1, limit).round().int().tolist()]
    return found


def _decoded(path: Path) -> Any:
    from PIL import Image

    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except (OSError, SyntaxError, ValueError) as error:
        raise InputError(
            f"{str(path)!r} is not a readable image ({error}). Repair or remove it."
        ) from error


def _read(files: Sequence[_File], size: int) -> Pixels:
    fitted = _fitted(size)
    images = torch.stack([fitted(_decoded(path)) for path, _ in files])
    return Pixels(images, torch.tensor([label for _, label in files]))


def _open_some(files: Sequence[_File]) -> None:
    """Open files before training starts, all of them up to a number, then evenly spread."""
    from PIL import Image

    step = max(1, len(files) // _OPENED_FIRST)
    for path, _ in files[::step]:
        try:
            with Image.open(path) as image:
                image.verify()
        except (OSError, SyntaxError, ValueError) as error:
            raise InputError(
                f"{str(path)!r} is not a readable image ({error}). Repair or remove it."
            ) from error


def _fitted(size: int, share: float = 1.0) -> Any:
    """Short side resized, the centre cut out, as bytes; the crop is `share` of the short side."""
    from torchvision.transforms import v2

    resize = v2.Resize(round(size / share), antialias=True)
    return v2.Compose([resize, v2.CenterCrop(size), v2.PILToTensor()])


def _augmented(recipe: Recipe, size: int) -> Any:
    from torchvision.transforms import v2

    if recipe.crop == "resized":
        steps: list[Any] = [v2.RandomResizedCrop(size, antialias=True), v2.PILToTensor()]
    else:
        steps = [_fitted(size)]
    if recipe.crop == "padded":
        steps.append(v2.RandomCrop(size, padding=recipe.crop_padding))
    return v2.Compose([*steps, v2.RandomHorizontalFlip(0.5 if recipe.flip else 0.0)])


class FolderData(Data):
    """Images that are read while they are used, by worker processes."""

    def __init__(
        self,
        root: Path,
        train: list[_File],
        test: list[_File],
        classes: int,
        size: int,
        share: float,
    ) -> None:
        self._train, self._test, self._size, self._share = train, test, size, share
        digest = hashlib.sha256()
        for path, label in (*train, *test):
            line = f"{path.relative_to(root)} {label} {path.stat().st_size}\n"
            digest.update(line.encode())
        shape = (3, size, size)
        counts = len(train), len(test)
        self.facts = Facts("folder", classes, shape, *counts, *IMAGENET, digest.hexdigest())

    def training(
        self, chunks: Sequence[Chunk], recipe: Recipe, seed: int, epoch: int, device: torch.device
    ) -> Iterator[Batch]:
        view = _View(self._train, _augmented(recipe, self._size), derive(seed, "image", epoch))
        return self._batches(view, [chunk.images.tolist() for chunk in chunks], device)

    def testing(self, chunks: Sequence[Tensor], device: torch.device) -> Iterator[Batch]:
        view = _View(self._test, _fitted(self._size, self._share), 0)
        return self._batches(view, [chunk.tolist() for chunk in chunks], device)

    def _batches(
        self, view: _View, chunks: list[list[int]], device: torch.device
    ) -> Iterator[Batch]:
        workers = min(8, (os.cpu_count() or 2) - 1)
        loader = DataLoader(
            view,
            batch_sampler=chunks,
            num_workers=workers,
            pin_memory=device.type == "cuda",
        )
        mean, std = (torch.tensor(values, device=device) for values in IMAGENET)
        for images, labels in loader:
            moved = images.to(device, non_blocking=True)
            yield normalised(moved, mean, std), labels.to(device, non_blocking=True)


class _View(Dataset[tuple[Tensor, int]]):
    """Files through a transform; each draws from a stream of its own, whichever worker reads it."""

    def __init__(self, files: list[_File], transform: Any, seed: int) -> None:
        self.files, self.transform, self.seed = files, transform, seed

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        path, label = self.files[index]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive(self.seed, index))
            return self.transform(_decoded(path)), label
