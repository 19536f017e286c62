"""Boxes, outlines and points as YOLO's files have them: a YAML that says where images are, and a
text beside each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from attnlab._errors import InputError
from attnlab.data.batches import Points
from attnlab.data.box_checks import FoundBox, FoundImage, FoundSets
from attnlab.data.orientation import shown_size
from attnlab.data.pictures import SUFFIXES

_POLYGON = 6
"""Numbers of a triangle."""


def read_yolo(root: Path, file: str = "data.yaml") -> FoundSets:
    """What a YAML file below `root` names as `train` and `val`, with the `names` of the categories:
    folders or lists of images, one or several, relative to its `path` or to `root`. Labels lie next
    to the images, with `labels` in the place of `images`; an image without a file of labels has no
    object. A label is a box, a polygon, or, where the YAML has `kpt_shape`, a box with points.
    """
    said = _description(root / file)
    base, notes = _base(root, said)
    parts, files = [], [root / file]
    for named in (said.train, said.test):
        images = []
        for name in named:
            found, listing = _images(_place(base, name), base, said.file)
            images += found
            files += listing
        images.sort()
        parts.append([_yolo_image(path, said.points) for path in images])
        files += [label for path in images if (label := _label(path)).is_file()]
    return FoundSets(
        parts[0],
        parts[1],
        {key: number for number, key in enumerate(said.names, 1)},
        tuple(said.names.values()),
        tuple(files),
        said.points,
        notes,
    )


@dataclass(frozen=True)
class _Description:
    """What a YAML says."""

    file: Path
    path: str | None
    train: list[str]
    test: list[str]
    names: dict[str, str]
    """Of the categories, by their keys."""
    points: Points | None


def _description(file: Path) -> _Description:
    import yaml

    if not file.is_file():
        raise InputError(
            f"There is no {str(file)!r}. Expected a YAML file with train, val and names: "
            f"data.options = {{ file = 'data.yaml' }}."
        )
    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8-sig"))
    except yaml.YAMLError as error:
        raise InputError(f"{str(file)!r} is not YAML: {error}.") from None
    table = found if isinstance(found, dict) else {}
    train, test = (_several(table, name, file) for name in ("train", "val"))
    for name, kinds in (("names", (list, dict)), ("path", (str, type(None)))):
        if not isinstance(table.get(name), kinds):
            raise InputError(
                f"{str(file)!r}: expected names, a list or a table, and path, a folder if it is "
                f"there, but {name} is {table.get(name)!r}."
            )
    names = table["names"] if isinstance(table["names"], dict) else dict(enumerate(table["names"]))
    called = {str(key): str(name) for key, name in names.items()}
    return _Description(file, table.get("path"), train, test, called, _points(table, file))


def _several(table: Mapping[str, Any], name: str, file: Path) -> list[str]:
    said = table.get(name)
    found: list[Any] = said if isinstance(said, list) else [said]
    if not found or not all(isinstance(each, str) for each in found):
        raise InputError(
            f"{str(file)!r}: expected train and val, each the name of a folder or of a text file "
            f"that lists images, or a list of such names, but {name} is {said!r}."
        )
    return found


def _base(root: Path, said: _Description) -> tuple[Path, tuple[str, ...]]:
    """The folder that names in the file are relative to, and what a reader should know of it."""
    if said.path is None:
        return root, ()
    place = root / said.path
    if not place.is_dir():
        note = f"{said.file.name} has path {said.path!r}, which is not there: root is taken for it."
        return root, (note,)
    return _below(root, place), ()


def _place(base: Path, name: str) -> Path:
    """Where a name leads. Roboflow writes ../train/images for what lies beside the file, and
    Ultralytics reads it so."""
    place = base / name
    if not place.exists() and name.startswith("../"):
        return base / name[3:]
    return _below(base, place) if ".." in Path(name).parts else place


def _below(folder: Path, place: Path) -> Path:
    """The place written as a part of the folder, if it is one: the identity of a run has names
    relative to it."""
    whole = place.resolve()
    inside = whole.is_relative_to(folder.resolve())
    return folder / whole.relative_to(folder.resolve()) if inside else whole


def _points(table: Mapping[str, Any], file: Path) -> Points | None:
    shape = table.get("kpt_shape")
    if shape is None:
        return None
    if not isinstance(shape, list) or len(shape) != 2 or shape[0] < 1 or shape[1] not in (2, 3):
        raise InputError(
            f"{str(file)!r}: expected kpt_shape to be a list of the number of points and 2 or 3, "
            f"the numbers for each, but got {shape!r}."
        )
    number, numbers = shape
    mirrored, deviations = (tuple(table.get(key) or ()) for key in ("flip_idx", "kpt_oks_sigmas"))
    if mirrored and sorted(mirrored) != list(range(number)):
        raise InputError(
            f"{str(file)!r}: expected flip_idx to have each of 0 to {number - 1} once but got "
            f"{list(mirrored)}."
        )
    if deviations and (len(deviations) != number or not min(deviations) > 0):
        raise InputError(
            f"{str(file)!r}: expected kpt_oks_sigmas to be {number} positive numbers but got "
            f"{list(deviations)}."
        )
    return Points(number, numbers == 3, mirrored, deviations)


def _images(place: Path, base: Path, file: Path) -> tuple[list[Path], list[Path]]:
    """The images in a folder or in a list, and the list."""
    if place.is_dir():
        return [p for p in place.rglob("*") if p.suffix.lower() in SUFFIXES], []
    if not place.is_file():
        raise InputError(f"There is no folder {str(place)!r}, which {str(file)!r} names.")
    if place.suffix != ".txt":
        raise InputError(
            f"{str(place)!r}, which {str(file)!r} names, is neither a folder nor a list of images "
            f"that ends in .txt."
        )
    lines = place.read_text(encoding="utf-8-sig").splitlines()
    names = [line.strip() for line in lines if line.strip()]
    return [(place.parent if n.startswith("./") else base) / n for n in names], [place]


def _label(image: Path) -> Path:
    """Return the file of labels: the last folder named `images` on the way is named `labels`."""
    parts = list(image.with_suffix(".txt").parts)
    for number in reversed(range(len(parts) - 1)):
        if parts[number] == "images":
            parts[number] = "labels"
            break
    return Path(*parts)


def _yolo_image(path: Path, points: Points | None) -> FoundImage:
    try:
        with Image.open(path) as opened:
            width, height = shown_size(opened)
    except Exception:  # what is wrong with it is said with all others
        width, height = 1, 1
    file, boxes = _label(path), []
    if file.is_file():
        for number, line in enumerate(file.read_text(encoding="utf-8-sig").splitlines(), 1):
            if line.strip():
                place = f"{file.name}, line {number}"
                boxes.append(_yolo_box(line.split(), place, width, height, points))
    return FoundImage(path, width, height, tuple(boxes))


def _yolo_box(
    words: list[str], place: str, width: int, height: int, points: Points | None
) -> FoundBox:
    """Read a category, a centre and a size, which are shares of the image's sides, and points; or a
    category and the corners of a polygon."""
    try:
        numbers = tuple(map(float, words[1:]))
    except ValueError:
        numbers = ()
    more: tuple[float, ...] = ()
    if points is not None:
        numbers, more = numbers[:4], numbers[4:]
        if len(more) != math.prod(points.shape):
            numbers = (*numbers, *more)  # which is refused with its place
        more = _in_pixels(more, width, height, points.shape[1])
    elif len(numbers) >= _POLYGON and len(numbers) % 2 == 0:
        outline = _in_pixels(numbers, width, height, 2)
        across, down = outline[::2], outline[1::2]
        edges = (min(across), min(down), max(across), max(down))
        return FoundBox(place, words[0], edges, outline=outline)
    if len(numbers) == 4:
        x, y, w, h = numbers
        numbers = (
            (x - w / 2) * width,
            (y - h / 2) * height,
            (x + w / 2) * width,
            (y + h / 2) * height,
        )
    return FoundBox(place, words[0], numbers, points=more)


def _in_pixels(numbers: Sequence[float], width: int, height: int, each: int) -> tuple[float, ...]:
    """Shares of the image's sides in pixels; each point has so many numbers, the first two x and
    y."""
    sides = (width, height, 1)[:each]
    return tuple(number * sides[place % each] for place, number in enumerate(numbers))
