"""Image files as pixels, pictures as tensors and back; a file that cannot be read is named."""

from __future__ import annotations

import io
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from attnlab._errors import InputError
from attnlab._words import counted, listed
from attnlab.data.orientation import orientation
from attnlab.data.trees import Walked

Looked = TypeVar("Looked")
SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".pgm", ".tif", ".tiff")


@dataclass(frozen=True)
class ImageRow:
    """An image in a row of a data set that `datasets` reads."""

    rows: Any
    """A data set of `datasets` with one column, of images that are not decoded."""
    number: int
    what: str
    """What messages call the column."""

    def __str__(self) -> str:
        return f"{self.what}, row {self.number}"

    def content(self) -> bytes:
        """The encoded image."""
        (found,) = self.rows[self.number].values()
        if found is None:
            raise InputError(f"{str(self)!r} holds no image. Expected one in every row.")
        content: bytes | None = found["bytes"]
        return Path(found["path"]).read_bytes() if content is None else content


class FoundImages(NamedTuple):
    """The image files below a folder, in order, and what is there besides."""

    images: list[Path]
    unread: Counter[str]
    """How many files are not read, by their ending."""
    hidden: list[Path]
    """Hidden folders and hidden images, which are left out: notebooks and macOS make them."""


def find_images(folder: Path) -> FoundImages:
    """Look through a folder of this machine and all that is below it; no file is opened."""
    return images_among((Path(place), inside, files) for place, inside, files in os.walk(folder))


def images_among(walked: Iterable[Walked]) -> FoundImages:
    """The images of all folders that are walked through."""
    found = FoundImages([], Counter(), [])
    for here, folders, files in walked:
        found.hidden.extend(here / name for name in folders if name.startswith("."))
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            path = here / name
            is_image = path.suffix.lower() in SUFFIXES
            if is_image and name.startswith("."):
                found.hidden.append(path)
            elif is_image:
                found.images.append(path)
            elif not name.startswith("."):
                found.unread[path.suffix.lower() or name] += 1
    found.images.sort()
    return found


def left_out(root: Path, part: str, found: Sequence[FoundImages]) -> list[str]:
    """A sentence for each kind of thing that was left out, for the notes of the data."""
    hidden = [path.relative_to(root).as_posix() for each in found for path in sorted(each.hidden)]
    unread: Counter[str] = sum((each.unread for each in found), Counter())
    notes = []
    if hidden:
        notes.append(f"Hidden, so left out: {listed(hidden)}.")
    if unread:
        kinds = [f"{number} {kind}" for kind, number in unread.most_common()]
        notes.append(
            f"Not read in {part}: {counted(unread.total(), 'file')} ({listed(kinds)}). Images end "
            f"in {', '.join(SUFFIXES)}."
        )
    return notes


def decoded(path: Path | ImageRow, mode: str = "RGB", *, as_shown: bool = False) -> Image.Image:
    """The image in `path` with 8 bits per channel, as it is stored or, turned by its EXIF
    orientation, as it is shown."""

    def look(image: Image.Image) -> Image.Image:
        if as_shown and orientation(image) != 1:
            image = ImageOps.exif_transpose(image)
        return eight_bits(image, repr(str(path))).convert(mode)

    return opened(path, look)


def image_bytes(image: Tensor | Path | ImageRow, *, as_shown: bool = False) -> Tensor:
    """The image as bytes (3, H, W): itself, or what its file or row holds, see `decoded`."""
    if isinstance(image, Tensor):
        return image
    return picture_bytes(decoded(image, as_shown=as_shown))


def class_numbers(path: Path | ImageRow) -> np.ndarray:
    """The numbers in a mask (H, W) as bytes: what its file stores, not the colours of a palette."""
    return opened(path, lambda image: _numbers(image, path))


def _numbers(image: Image.Image, path: Path | ImageRow) -> np.ndarray:
    wide = image.mode.startswith("I")
    if image.mode not in ("P", "L", "1") and not wide:
        raise InputError(
            f"{str(path)!r} is not a mask: it has colours (mode {image.mode}). Expected one number "
            f"for each pixel, the class: a PNG with a palette or with shades of grey."
        )
    numbers = np.asarray(image)
    if wide and not (numbers.min() >= 0 and numbers.max() <= np.iinfo(np.uint8).max):
        raise InputError(
            f"{str(path)!r} has numbers from {numbers.min()} to {numbers.max()}. Expected classes "
            f"from 0 to 254, and 255 where nothing counts."
        )
    return numbers.astype(np.uint8)


def verify(paths: Sequence[Path]) -> None:
    """Look into each file; the first that is not an image is an error."""
    for path in paths:
        opened(path, lambda image: image.verify())


def eight_bits(image: Image.Image, what: str) -> Image.Image:
    """The image with 8 bits per channel; errors call it `what`. Pillow itself cuts larger values
    off at 255, which turns 16-bit photographs white."""
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image, dtype=np.uint16) / 257).round().astype(np.uint8))
    if image.mode in ("I", "F"):
        raise InputError(
            f"{what} has pixels of 32 bits (mode {image.mode}), whose range is not known. "
            f"Expected 8 or 16 bits per channel: convert it first."
        )
    return image


def opened(
    source: Path | ImageRow | bytes, look: Callable[[Image.Image], Looked], name: str = ""
) -> Looked:
    """What `look` finds in an image: in a file or row, or in its content, which errors call
    `name`."""
    content = source.content() if isinstance(source, ImageRow) else source
    what = name if isinstance(source, bytes) else str(source)
    file = io.BytesIO(content) if isinstance(content, bytes) else content
    try:
        with warnings.catch_warnings():
            # So large that it may be made to fill the memory: an error that names the file.
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(file) as image:
                return look(image)
    except InputError:
        raise
    except Exception as error:  # on arbitrary bytes the readers fail with any type of error
        raise InputError(
            f"{what!r} is not a readable image ({error}). Repair it or take it out of the "
            f"{'folder' if isinstance(source, Path) else 'data'}."
        ) from error


def scaled(picture: Image.Image, size: int) -> Image.Image:
    """Return the picture with its short side scaled to `size`."""
    factor = size / min(picture.size)
    sides = [max(size, round(side * factor)) for side in picture.size]
    return picture.resize((sides[0], sides[1]), Image.Resampling.BICUBIC)


def resized(images: Tensor, sides: tuple[int, int]) -> Tensor:
    """Images of bytes (..., H, W) with these sides."""
    from torchvision.transforms.v2.functional import resize

    if tuple(images.shape[-2:]) == sides:
        return images
    found: Tensor = resize(images, list(sides), antialias=True)
    return found


def picture_bytes(picture: Image.Image) -> Tensor:
    """A coloured picture as bytes (3, H, W)."""
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1)


def as_tensor(picture: Image.Image) -> Tensor:
    """A coloured picture as a tensor (3, H, W) with pixels 0 to 1."""
    return picture_bytes(picture).float() / 255


def png(pixels: Tensor) -> bytes:
    """A picture (3, H, W), pixels 0 to 1, as a PNG file."""
    rounded = (255 * pixels.detach().cpu().clamp(0, 1)).round().byte().permute(1, 2, 0)
    buffer = io.BytesIO()
    Image.fromarray(rounded.numpy()).save(buffer, "PNG")
    return buffer.getvalue()
