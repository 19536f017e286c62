"""Photographs and paintings for style transfer.

Photographs have no targets and are embedded, or all of a folder.

The embedded ones are scikit-learn's two sample photographs, a temple and a dahlia. Training sees
parts of the right half of each; the left half is held out, so nothing is seen in both.

Paintings are what a style is learned from: two made in code, or a file of the user's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from attnlab._checksums import files_checksum
from attnlab._errors import InputError, nearest
from attnlab._extras import needs
from attnlab._seeds import stream
from attnlab.data.config import DataConfig
from attnlab.data.memory import Pixels
from attnlab.data.pictures import (
    SUFFIXES,
    as_tensor,
    decoded,
    find_images,
    left_out,
    scaled,
)

SIZE = 96
"""The side of training parts if `size` is not given: a network sees 96×96 pixels at a time."""
LARGER = 4 / 3
"""Photographs are scaled so that their short side is this much more than a part's."""
_FEWEST = 96
"""The least number of parts, so that an epoch has some steps however few the photographs are; more
photographs give one part each."""
_HELD_OUT = 5
"""A folder that is not divided holds out one photograph in this number."""


def photos(config: DataConfig) -> tuple[Pixels, Pixels, int]:
    """Training parts and whole held-out photographs, all square, those 4/3 as large as these."""
    size = config.size or SIZE
    notes: tuple[str, ...] = ()
    if config.root is None:
        train, test = _embedded()
    else:
        files = _files(Path(config.root))
        notes = files.notes
        train, test = ([decoded(path) for path in part] for part in (files.train, files.test))
    each = max(1, -(-_FEWEST // len(train)))
    parts = [part for n, photo in enumerate(train) for part in _parts(photo, size, each, n)]
    held_out = _pixels([_square(photo, round(LARGER * size)) for photo in test])
    return replace(_pixels(parts), notes=notes), held_out, 0


def photos_checksum(config: DataConfig) -> str:
    """Return a checksum of the content of all files."""
    if config.root is None:
        files = _sample_files()
        return files_checksum(files[0].parent, files)
    found = _files(Path(config.root))
    return files_checksum(config.root, found.train + found.test)


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


class _Files(NamedTuple):
    train: list[Path]
    test: list[Path]
    notes: tuple[str, ...] = ()


def _files(root: Path) -> _Files:
    """Return the files under train/ and test/ if both exist; otherwise every fifth is held out."""
    if not root.is_dir():
        raise InputError(f"There is no folder {str(root)!r}. Expected one with photographs.")
    parts = [find_images(root / name) for name in ("train", "test")]
    if all(part.images for part in parts):
        return _Files(parts[0].images, parts[1].images, tuple(left_out(root, root.name, parts)))
    whole = find_images(root)
    found = whole.images
    if len(found) < _HELD_OUT:
        raise InputError(
            f"Expected at least {_HELD_OUT} photographs in {str(root)!r}, of which every fifth is "
            f"held out, but found {len(found)} files that end in {', '.join(SUFFIXES)}. Add some, "
            f"or divide them into folders train and test."
        )
    chosen = [place % _HELD_OUT == _HELD_OUT - 1 for place in range(len(found))]
    held = [path for path, out in zip(found, chosen, strict=True) if out]
    kept = [path for path, out in zip(found, chosen, strict=True) if not out]
    return _Files(kept, held, tuple(left_out(root, root.name, [whole])))


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
    """Return the middle of a photograph, scaled to a square."""
    small = scaled(photo, size)
    left, top = (small.width - size) // 2, (small.height - size) // 2
    return small.crop((left, top, left + size, top + size))


def _pixels(pictures: list[Image.Image]) -> Pixels:
    images: Tensor = torch.from_numpy(np.stack([np.asarray(picture) for picture in pictures]))
    return Pixels(images.permute(0, 3, 1, 2).contiguous(), torch.zeros(len(pictures), 0).long())


SIDE = 256
SMALLEST = 32
"""The least short side of a picture in pixels: less has no texture to learn."""
_SUPERSAMPLED = 2
"""Pictures are drawn larger by this factor and scaled down, so that edges are smooth."""

_DUSK = ("#0b1f4b", "#1f4e8c", "#3f8fb8", "#f2c14e", "#f08a24", "#c8412b", "#f7e8c0")
_GLASS = ("#b3212e", "#e0702a", "#f0c23b", "#2f7d4f", "#1f5fa8", "#5b2d82", "#e8e0c8")


def strokes() -> Image.Image:
    """Thick brush strokes along a field of two whirls, dark to light."""
    numbers = stream(0, "painting", "strokes")
    side = SIDE * _SUPERSAMPLED
    canvas = Image.new("RGB", (side, side), _DUSK[0])
    draw = ImageDraw.Draw(canvas)
    whirls = ((0.3, 0.35, 1.0), (0.72, 0.62, -1.0))
    for x, y, colour, length, width in torch.rand(2600, 5, generator=numbers).tolist():
        line = [(x * side, y * side)]
        for _ in range(6 + int(10 * length)):
            angle = _direction(line[-1][0] / side, line[-1][1] / side, whirls)
            line.append((line[-1][0] + 7 * math.cos(angle), line[-1][1] + 7 * math.sin(angle)))
        # Colours follow the height, with some chance: a sky over a field.
        place = min(0.999, max(0.0, 0.75 * y + 0.5 * (colour - 0.5) + 0.1))
        draw.line(
            line, fill=_DUSK[int(place * len(_DUSK))], width=5 + int(9 * width), joint="curve"
        )
    return canvas.resize((SIDE, SIDE), Image.Resampling.LANCZOS)


def glass() -> Image.Image:
    """Stained glass: cells of few colours between dark lines."""
    numbers = stream(0, "painting", "glass")
    points = SIDE * torch.rand(90, 2, generator=numbers).numpy()
    colours = torch.randint(len(_GLASS), (90,), generator=numbers).numpy()
    rows, columns = np.mgrid[:SIDE, :SIDE]
    places = np.stack([columns, rows], axis=-1)[:, :, None, :] + 0.5
    distance = np.sqrt(((places - points) ** 2).sum(-1))
    first, second = np.partition(distance, 1, axis=2)[:, :, :2].transpose(2, 0, 1)
    palette = np.array([_rgb(colour) for colour in _GLASS], dtype=np.float64)
    light = 1.1 - 0.4 * first / first.max()
    cells = palette[colours[distance.argmin(2)]] * light[..., None]
    lead = np.clip((second - first - 3) / 2, 0, 1)[..., None]
    return Image.fromarray(np.clip(cells * lead + 24 * (1 - lead), 0, 255).astype(np.uint8))


PAINTINGS: dict[str, Callable[[], Image.Image]] = {"strokes": strokes, "glass": glass}
"""The paintings made in code, by name."""


def painting_file(style: str) -> Path | None:
    """The file that `style` names; None if it is one of `PAINTINGS`."""
    if style in PAINTINGS:
        return None
    path = Path(style)
    if not path.is_file():
        raise InputError(
            f"There is no style picture {style!r}.{nearest(style, PAINTINGS)} Expected the path of "
            f"a picture, or one of attnlab's own: {', '.join(PAINTINGS)}."
        )
    return path


def read_painting(style: str, size: int) -> Tensor:
    """The picture (3, H, W), pixels 0 to 1, its short side scaled to `size`."""
    file = painting_file(style)
    picture = PAINTINGS[style]() if file is None else decoded(file)
    if min(picture.size) < SMALLEST:
        raise InputError(
            f"The style picture {style!r} is {picture.width}×{picture.height}, expected at least "
            f"{SMALLEST}×{SMALLEST}: there is no texture to learn in less."
        )
    return as_tensor(scaled(picture, size))


def _direction(x: float, y: float, whirls: tuple[tuple[float, float, float], ...]) -> float:
    across, along = 0.6, 0.15
    for centre_x, centre_y, turn in whirls:
        dx, dy = x - centre_x, y - centre_y
        weight = turn / (0.04 + dx * dx + dy * dy)
        across, along = across - weight * dy, along + weight * dx
    return math.atan2(along, across)


def _rgb(colour: str) -> tuple[int, ...]:
    return tuple(int(colour[i : i + 2], 16) for i in (1, 3, 5))
