"""Photographs without targets, for style transfer: embedded, or all of a folder.

The embedded ones are scikit-learn's two sample photographs, a temple and a dahlia. Training sees
parts of the right half of each; the left half is held out, so nothing is seen in both.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from attnlab._checksums import files_checksum
from attnlab._errors import InputError
from attnlab._extras import needs
from attnlab._seeds import stream
from attnlab.data.config import DataConfig
from attnlab.data.decode import SUFFIXES, decoded
from attnlab.data.memory import Pixels
from attnlab.data.pictures import scaled

SIZE = 96
"""Of training parts where `size` is not given: a network sees 96×96 pixels at a time."""
LARGER = 4 / 3
"""Photographs are scaled so that their short side is this much more than a part's."""
_FEWEST = 96
"""Parts, so that an epoch has some steps however few the photographs; else one of each."""
_HELD_OUT = 5
"""Every fifth photograph of a folder that is not divided."""


def photos(config: DataConfig) -> tuple[Pixels, Pixels, int]:
    """Training parts and whole held-out photographs, all square, those 4/3 as large as these."""
    size = config.size or SIZE
    train, test = _embedded() if config.root is None else _of_folder(_files(Path(config.root)))
    each = max(1, -(-_FEWEST // len(train)))
    parts = [part for n, photo in enumerate(train) for part in _parts(photo, size, each, n)]
    return _pixels(parts), _pixels([_square(photo, round(LARGER * size)) for photo in test]), 0


def photos_checksum(config: DataConfig) -> str:
    """Of the content of all files."""
    if config.root is None:
        files = _sample_files()
        return files_checksum(files[0].parent, files)
    train, test = _files(Path(config.root))
    return files_checksum(config.root, train + test)


def _sample_files() -> list[Path]:
    with needs("study"):
        from sklearn.datasets import load_sample_images

    return sorted(Path(name) for name in load_sample_images().filenames)


def _embedded() -> tuple[list[Image.Image], list[Image.Image]]:
    train, test = [], []
    for file in _sample_files():
        photo = decoded(file)
        width, height = photo.size
        train.append(photo.crop((width // 2, 0, width, height)))
        test.append(photo.crop((0, 0, width // 2, height)))
    return train, test


def _of_folder(files: tuple[list[Path], list[Path]]) -> tuple[list[Image.Image], list[Image.Image]]:
    train, test = files
    return [decoded(path) for path in train], [decoded(path) for path in test]


def _files(root: Path) -> tuple[list[Path], list[Path]]:
    """Those under train/ and test/ where both are there, else every fifth is held out."""
    if not root.is_dir():
        raise InputError(f"There is no folder {str(root)!r}. Expected one with photographs.")
    parts = [_images(root / name) for name in ("train", "test")]
    if all(parts):
        return parts[0], parts[1]
    found = _images(root)
    if len(found) < _HELD_OUT:
        raise InputError(
            f"Expected at least {_HELD_OUT} photographs in {str(root)!r}, of which every fifth is "
            f"held out, but found {len(found)} files that end in {', '.join(SUFFIXES)}. Add some, "
            f"or divide them into folders train and test."
        )
    chosen = [place % _HELD_OUT == _HELD_OUT - 1 for place in range(len(found))]
    held = [path for path, out in zip(found, chosen, strict=True) if out]
    return [path for path, out in zip(found, chosen, strict=True) if not out], held


def _images(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)


def _parts(photo: Image.Image, size: int, number: int, which: int) -> list[Image.Image]:
    """Squares of `size` at random places of the photograph, the same ones each time."""
    small = scaled(photo, round(LARGER * size))
    places = torch.rand(number, 2, generator=stream(0, "photos", which)).tolist()
    found = []
    for across, down in places:
        left = int(across * (small.width - size + 1))
        top = int(down * (small.height - size + 1))
        found.append(small.crop((left, top, left + size, top + size)))
    return found


def _square(photo: Image.Image, size: int) -> Image.Image:
    """The middle, scaled."""
    small = scaled(photo, size)
    left, top = (small.width - size) // 2, (small.height - size) // 2
    return small.crop((left, top, left + size, top + size))


def _pixels(pictures: list[Image.Image]) -> Pixels:
    images: Tensor = torch.from_numpy(np.stack([np.asarray(picture) for picture in pictures]))
    return Pixels(images.permute(0, 3, 1, 2).contiguous(), torch.zeros(len(pictures), 0).long())
