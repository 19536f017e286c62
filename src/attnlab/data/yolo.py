"""Boxes in YOLO's text files, one per image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from PIL import Image

from attnlab._errors import InputError
from attnlab.data.box_checks import FoundBox, FoundImage
from attnlab.data.box_sets import FoundSets
from attnlab.data.decode import SUFFIXES


def yolo(root: Path, file: str = "data.yaml") -> FoundSets:
    """The folders `train` and `val` of a YAML file below `root`, relative to it, and the `names` of
    the categories. Labels lie beside the images, with `labels` in the place of `images`; an image
    without a file of labels has no object.
    """
    description = _description(root / file)
    names = description["names"]
    listed = list(names.values()) if isinstance(names, dict) else list(names)
    keys = list(names) if isinstance(names, dict) else list(range(len(listed)))
    parts, labels = [], []
    for split in ("train", "val"):
        images = _images(root / str(description[split]), root / file)
        parts.append([_image(path) for path in images])
        labels += [label for path in images if (label := _label(path)).is_file()]
    return FoundSets(
        parts[0],
        parts[1],
        {str(key): number for number, key in enumerate(keys, 1)},
        tuple(map(str, listed)),
        (root / file, *labels),
    )


def _description(file: Path) -> dict[str, Any]:
    import yaml

    if not file.is_file():
        raise InputError(
            f"There is no {str(file)!r}. Expected a YAML file with train, val and names: "
            f"data.options = {{ file = 'data.yaml' }}."
        )
    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise InputError(f"{str(file)!r} is not YAML: {error}.") from None
    table = found if isinstance(found, dict) else {}
    for name, kinds in (("train", str), ("val", str), ("names", (list, dict))):
        if not isinstance(table.get(name), kinds):
            raise InputError(
                f"{str(file)!r}: expected train and val, each the name of a folder, and names, a "
                f"list or a table, but {name} is {table.get(name)!r}."
            )
    return table


def _images(folder: Path, file: Path) -> list[Path]:
    if not folder.is_dir():
        raise InputError(f"There is no folder {str(folder)!r}, which {str(file)!r} names.")
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)


def _label(image: Path) -> Path:
    """The last folder named `images` on the way is named `labels` instead."""
    parts = list(image.with_suffix(".txt").parts)
    for number in reversed(range(len(parts) - 1)):
        if parts[number] == "images":
            parts[number] = "labels"
            break
    return Path(*parts)


def _image(path: Path) -> FoundImage:
    try:
        with Image.open(path) as opened:
            width, height = opened.size
    except Exception:  # what is wrong with it is said with all others
        width, height = 1, 1
    file, boxes = _label(path), []
    if file.is_file():
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            if line.strip():
                boxes.append(_box(line.split(), f"{file.name}, line {number}", width, height))
    return FoundImage(path, width, height, tuple(boxes))


def _box(words: list[str], place: str, width: int, height: int) -> FoundBox:
    """Category, centre and size, as shares of the image's sides."""
    try:
        numbers = tuple(map(float, words[1:]))
    except ValueError:
        numbers = ()
    if len(numbers) == 4:
        x, y, w, h = numbers
        numbers = (
            (x - w / 2) * width,
            (y - h / 2) * height,
            (x + w / 2) * width,
            (y + h / 2) * height,
        )
    return FoundBox(place, words[0], numbers)
