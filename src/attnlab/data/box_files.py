"""Boxes in a file per image: Pascal VOC's XML and YOLO's text."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from PIL import Image

from attnlab._errors import InputError
from attnlab.data.box_checks import FoundBox, FoundImage, FoundSets
from attnlab.data.pictures import SUFFIXES

_EDGES = ("xmin", "ymin", "xmax", "ymax")


def read_voc(
    root: Path,
    train: str = "ImageSets/Main/trainval.txt",
    test: str = "ImageSets/Main/test.txt",
    annotations: str = "Annotations",
    images: str = "JPEGImages",
) -> FoundSets:
    """Lists of images, one name per line, and folders of annotations and images below `root`; the
    defaults are VOC's own. Its pixels count from 1 and boxes include their last one. Objects that
    are marked difficult are taken as crowds: not trained on, and whatever is found there is not a
    mistake.
    """
    lists = [root / train, root / test]
    parts = []
    files = list(lists)
    for listing in lists:
        names = _names(listing)
        files += [root / annotations / f"{name}.xml" for name in names]
        parts.append(
            [_voc_image(root / annotations / f"{name}.xml", root / images) for name in names]
        )
    found = sorted({str(box.category) for part in parts for image in part for box in image.boxes})
    return FoundSets(
        parts[0],
        parts[1],
        {name: number for number, name in enumerate(found, 1)},
        tuple(found),
        tuple(dict.fromkeys(files)),
    )


def _names(listing: Path) -> list[str]:
    if not listing.is_file():
        raise InputError(
            f"There is no {str(listing)!r}. Expected a list of images, one name per line: "
            f"data.options = {{ train = 'ImageSets/Main/trainval.txt', test = … }}."
        )
    lines = listing.read_text(encoding="utf-8").splitlines()
    names = [line.split()[0] for line in lines if line.strip()]
    repeated = sorted({name for name in names if names.count(name) > 1}) if _repeats(names) else []
    if repeated:
        raise InputError(f"{str(listing)!r} names {repeated[0]!r} more than once.")
    return names


def _repeats(names: list[str]) -> bool:
    return len(set(names)) < len(names)


def _voc_image(file: Path, folder: Path) -> FoundImage:
    if not file.is_file():
        raise InputError(f"There is no {str(file)!r}, the annotation of an image that is listed.")
    content = file.read_bytes()
    if b"<!" in content.replace(b"<!--", b""):  # entities can be nested until they fill the memory
        raise InputError(f"{str(file)!r} declares entities, which no annotation needs.")
    try:
        tree = ElementTree.fromstring(content)
    except ElementTree.ParseError as error:
        raise InputError(f"{str(file)!r} is not XML: {error}.") from None
    width, height = (_number(tree, f"size/{name}", file) for name in ("width", "height"))
    name = tree.findtext("filename") or f"{file.stem}.jpg"
    boxes = tuple(
        _voc_box(each, number, file) for number, each in enumerate(tree.findall("object"))
    )
    return FoundImage(folder / Path(name).name, int(width), int(height), boxes)


def _voc_box(found: ElementTree.Element, number: int, file: Path) -> FoundBox:
    left, top, right, bottom = (_number(found, f"bndbox/{edge}", file, number) for edge in _EDGES)
    return FoundBox(
        f"{file.name}, object {number}",
        (found.findtext("name") or "").strip(),
        (left - 1, top - 1, right, bottom),
        (found.findtext("difficult") or "0").strip() == "1",
    )


def _number(found: ElementTree.Element, path: str, file: Path, number: int | None = None) -> float:
    text = found.findtext(path)
    try:
        return float(text or "")
    except ValueError:
        where = "" if number is None else f" of object {number}"
        raise InputError(
            f"{str(file)!r}: expected a number as {path}{where} but got {text!r}."
        ) from None


def read_yolo(root: Path, file: str = "data.yaml") -> FoundSets:
    """The folders `train` and `val` of a YAML file below `root`, relative to it, and the `names` of
    the categories. Labels lie next to the images, with `labels` in the place of `images`; an image
    without a file of labels has no object.
    """
    description = _description(root / file)
    names = description["names"]
    listed = list(names.values()) if isinstance(names, dict) else list(names)
    keys = list(names) if isinstance(names, dict) else list(range(len(listed)))
    parts, labels = [], []
    for split in ("train", "val"):
        images = _images(root / str(description[split]), root / file)
        parts.append([_yolo_image(path) for path in images])
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
    """Return the file of labels: the last folder named `images` on the way is named `labels`."""
    parts = list(image.with_suffix(".txt").parts)
    for number in reversed(range(len(parts) - 1)):
        if parts[number] == "images":
            parts[number] = "labels"
            break
    return Path(*parts)


def _yolo_image(path: Path) -> FoundImage:
    try:
        with Image.open(path) as opened:
            width, height = opened.size
    except Exception:  # what is wrong with it is said with all others
        width, height = 1, 1
    file, boxes = _label(path), []
    if file.is_file():
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            if line.strip():
                boxes.append(_yolo_box(line.split(), f"{file.name}, line {number}", width, height))
    return FoundImage(path, width, height, tuple(boxes))


def _yolo_box(words: list[str], place: str, width: int, height: int) -> FoundBox:
    """Read a category, a centre and a size, which are shares of the image's sides."""
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
