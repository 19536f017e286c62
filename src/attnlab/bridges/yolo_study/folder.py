"""Images with boxes as a folder that Ultralytics reads: what is trained can be looked at, and
trained on by hand.

Boxes were read and checked by our loader, so they are those that any other detector of a study
gets. Images that are files are linked, others are written as PNG. A folder is made once for a
content, and is there whole or not at all.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from attnlab._errors import InputError
from attnlab._folders import cache_folder
from attnlab.data.boxes import BoxData, BoxImage
from attnlab.data.orientation import orientation, shown_size
from attnlab.data.pictures import png

_LINKED = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp"})
_PARTS = ("train", "val")


def data_folder(data: BoxData) -> Path:
    """The folder of these images; it is written if it is not there."""
    parts = dict(zip(_PARTS, (data.train, data.test), strict=True))
    labels = {part: [_label_text(each) for each in images] for part, images in parts.items()}
    folder = cache_folder() / "ultralytics" / "data" / _key(data, labels)
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        for part, images in parts.items():
            _write_part(partial, part, images, labels[part])
        names = "".join(f"  {n}: {name!r}\n" for n, name in enumerate(data.facts.categories))
        text = f"path: {str(folder)!r}\ntrain: images/train\nval: images/val\nnames:\n{names}"
        (partial / "data.yaml").write_text(text, encoding="utf-8")
        try:
            partial.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was first
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def refuse_missing(found: int, expected: int, part: str, folder: Path) -> None:
    """Refuse to go on with fewer images than there are: Ultralytics leaves out what it cannot
    read."""
    if found != expected:
        raise InputError(
            f"Ultralytics reads {found} of {expected} {part} images in {str(folder)!r}: the others "
            f"are gone or damaged. Remove that folder, which is made again; if its images are "
            f"links, see whether the files are still there."
        )


def _key(data: BoxData, labels: dict[str, list[str]]) -> str:
    digest = hashlib.sha256(repr((data.facts.checksum, data.facts.categories)).encode())
    for part in _PARTS:
        digest.update(repr(labels[part]).encode())
    return digest.hexdigest()[:16]


def _write_part(folder: Path, part: str, images: Sequence[BoxImage], labels: Sequence[str]) -> None:
    for kind in ("images", "labels"):
        (folder / kind / part).mkdir(parents=True)
    for number, (image, text) in enumerate(zip(images, labels, strict=True)):
        name = f"{number:07d}"  # sorted by name they are in our order
        (folder / "labels" / part / f"{name}.txt").write_text(text)
        file = image.image
        if isinstance(file, Path) and file.suffix.lower() in _LINKED and _is_upright(file):
            link = folder / "images" / part / f"{name}{file.suffix.lower()}"
            os.symlink(file.resolve(), link)
        else:
            (folder / "images" / part / f"{name}.png").write_bytes(
                png(image.pixels().float() / 255)
            )


def _is_upright(file: Path) -> bool:
    with Image.open(file) as image:
        return image.mode == "RGB" and orientation(image) == 1


def _label_text(image: BoxImage) -> str:
    """A line for each object: its class from 0, then centre, width and height as shares of the
    image. Crowds are no objects, and Ultralytics knows none."""
    height, width = _sides(image)
    lines = []
    target = image.target
    rows = zip(
        target["boxes"].double().tolist(),
        target["labels"].tolist(),
        target["iscrowd"].tolist(),
        strict=True,
    )
    for (left, top, right, bottom), label, crowd in rows:
        if crowd:
            continue
        shares = (
            (left + right) / 2 / width,
            (top + bottom) / 2 / height,
            (right - left) / width,
            (bottom - top) / height,
        )
        lines.append(f"{label - 1} {' '.join(f'{share:.9g}' for share in shares)}\n")
    return "".join(lines)


def _sides(image: BoxImage) -> tuple[int, int]:
    """Height and width of its pixels."""
    if not isinstance(image.image, Path):
        return image.image.shape[1], image.image.shape[2]
    with Image.open(image.image) as opened:
        width, height = shown_size(opened) if image.as_shown else opened.size
    return height, width
