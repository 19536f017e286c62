"""Images as a folder that Ultralytics reads: what is trained can be looked at, and trained on by
hand.

What is known of the images was read and checked by our loader, so it is what any other network of a
study gets. Images with boxes that are files are linked, others are written as PNG. A folder is made
once for a content, and is there whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from attnlab._errors import InputError
from attnlab._folders import cache_folder
from attnlab.bridges.yolo_study.kinds import DETECT, POSE, SEGMENT, Kind
from attnlab.data import Batch, Data, Facts
from attnlab.data.batches import Chunk
from attnlab.data.boxes import BoxData, BoxImage
from attnlab.data.orientation import orientation, shown_size
from attnlab.data.pictures import png

_LINKED = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp"})
_PARTS = ("train", "val")
_AT_ONCE = 256
"""Images that are written at a time."""


def data_folder(data: BoxData, kind: Kind = DETECT) -> Path:
    """The folder of these images, with what networks of this kind learn; it is written if it is not
    there."""
    parts = dict(zip(_PARTS, (data.train, data.test), strict=True))
    labels = {part: [_label_text(each, kind) for each in images] for part, images in parts.items()}
    described = _description(data.facts, kind)
    as_shown = [images[0].as_shown for images in parts.values()]
    folder = _place((data.facts.checksum, labels, described, as_shown))

    def write(partial: Path) -> None:
        for part, images in parts.items():
            _write_part(partial, part, images, labels[part])
        text = f"path: {_quoted(str(folder))}\n{described}"
        (partial / "data.yaml").write_text(text, encoding="utf-8")

    return _written(folder, write)


def class_folder(data: Data) -> Path:
    """The folder of images with classes, a folder below it for each class; it is written if it is
    not there."""
    facts = data.facts
    counts = dict(zip(_PARTS, (facts.train, facts.test), strict=True))
    first = [
        hashlib.sha256(batch.inputs.numpy().tobytes()).hexdigest()
        for part in _PARTS
        for batch in islice(_batches(data, part, counts[part]), 1)
    ]
    # The checksum is of the source: how it was cut and resized shows in the first batches.
    sizes = (facts.shape, facts.train, facts.test, facts.outputs)
    folder = _place(("classes", facts.checksum, sizes, first))

    def write(partial: Path) -> None:
        for part in _PARTS:
            for label in range(facts.outputs):  # one without an image has a number too
                (partial / part / class_name(label, facts.outputs)).mkdir(parents=True)
            for batch, numbers in zip(
                _batches(data, part, counts[part]), _chunks(counts[part]), strict=True
            ):
                _write_classes(partial / part, facts, batch, numbers.tolist())

    return _written(folder, write)


def class_name(label: int, classes: int) -> str:
    """The folder of a class: sorted by name they are in our order."""
    return f"{label:0{len(str(classes - 1))}d}"


def _chunks(images: int) -> Sequence[Tensor]:
    return torch.arange(images).split(_AT_ONCE)


def _batches(data: Data, part: str, images: int) -> Iterator[Batch]:
    cpu = torch.device("cpu")
    if part == "train":
        yield from data.training([Chunk(each, 1.0) for each in _chunks(images)], 0, 0, cpu)
    else:
        yield from data.testing(_chunks(images), cpu)


def _write_classes(folder: Path, facts: Facts, batch: Batch, numbers: Sequence[int]) -> None:
    images = facts.pixels(batch.inputs).expand(-1, 3, -1, -1)
    for number, image, label in zip(numbers, images, batch.targets.tolist(), strict=True):
        place = folder / class_name(label, facts.outputs) / f"{number:07d}.png"
        place.write_bytes(png(image))


def _place(content: object) -> Path:
    """The folder of this content."""
    name = hashlib.sha256(repr(content).encode()).hexdigest()[:16]
    return cache_folder() / "ultralytics" / "data" / name


def _written(folder: Path, write: Callable[[Path], None]) -> Path:
    """The folder, whole: `write` fills it if it is not there."""
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        write(partial)
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


def _description(facts: Facts, kind: Kind) -> str:
    """What their file says of the data, but for where they are."""
    lines = ["train: images/train", "val: images/val", "names:"]
    lines += [f"  {number}: {_quoted(name)}" for number, name in enumerate(facts.categories)]
    if kind is POSE and facts.points is not None:
        lines.append(f"kpt_shape: {list(facts.points.shape)}")
        if facts.points.mirrored:
            lines.append(f"flip_idx: {list(facts.points.mirrored)}")
        if facts.points.deviations:
            lines.append(f"kpt_oks_sigmas: {list(facts.points.deviations)}")
    return "\n".join([*lines, ""])


def _quoted(text: str) -> str:
    """Write a text as YAML reads it back: its strings in double quotes are JSON's, and Python's are
    not."""
    return json.dumps(text, ensure_ascii=False)


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


def _label_text(image: BoxImage, kind: Kind) -> str:
    """A line for each object: its class from 0, then, as shares of the image, centre, width and
    height, and points if they are learned; or its outline. Crowds are not objects, and Ultralytics
    knows none."""
    sides = torch.tensor(_sides(image)).flip(0).double()
    target = image.target
    lines = []
    for number, (label, crowd) in enumerate(
        zip(target["labels"].tolist(), target["iscrowd"].tolist(), strict=True)
    ):
        if crowd:
            continue
        if kind is SEGMENT:
            numbers = (image.outlines[number] / sides).clamp(0, 1).flatten()
        else:
            numbers = _box(target["boxes"][number].double(), sides)
        if kind is POSE and image.points is not None:
            points = image.points[number].double()
            numbers = torch.cat([numbers, _points(points, sides)])
        shares = " ".join(f"{each:.9g}" for each in numbers.tolist())
        lines.append(f"{label - 1} {shares}\n")
    return "".join(lines)


def _box(edges: Tensor, sides: Tensor) -> Tensor:
    first, last = edges[:2], edges[2:]
    return torch.cat([(first + last) / 2 / sides, (last - first) / sides])


def _points(points: Tensor, sides: Tensor) -> Tensor:
    return torch.cat([points[:, :2] / sides, points[:, 2:]], 1).flatten()


def _sides(image: BoxImage) -> tuple[int, int]:
    """Height and width of its pixels."""
    if not isinstance(image.image, Path):
        return image.image.shape[1], image.image.shape[2]
    with Image.open(image.image) as opened:
        width, height = shown_size(opened) if image.as_shown else opened.size
    return height, width
