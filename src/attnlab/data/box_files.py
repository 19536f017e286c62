"""Boxes as other people's files have them: COCO's JSON, Pascal VOC's XML and YOLO's text."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from PIL import Image

from attnlab._errors import InputError
from attnlab._words import counted
from attnlab.data.batches import Points
from attnlab.data.box_checks import FoundBox, FoundImage, FoundSets, spelled_out
from attnlab.data.orientation import shown_size
from attnlab.data.pictures import SUFFIXES

Entry = Mapping[str, object]
"""One image, annotation or category of a file of COCO."""
_POLYGON = 6
"""Numbers of a triangle."""
_EDGES = ("xmin", "ymin", "xmax", "ymax")


def read_coco(
    root: Path,
    train: str = "annotations/instances_train2017.json",
    test: str = "annotations/instances_val2017.json",
    train_images: str = "train2017",
    test_images: str = "val2017",
) -> FoundSets:
    """Files of annotations and folders of images below `root`; the defaults are COCO 2017's."""
    files = [root / train, root / test]
    contents = [_coco_content(file) for file in files]
    categories = [_categories(content, file) for content, file in zip(contents, files, strict=True)]
    if categories[0] != categories[1]:
        other = sorted({*categories[0].items()} ^ {*categories[1].items()})
        raise InputError(
            f"{str(files[0])!r} and {str(files[1])!r} have different categories: {other[:3]}. "
            f"Expected the same ids with the same names in both."
        )
    folders = (root / train_images, root / test_images)
    parts = [
        _coco_images(content, file, folder)
        for content, file, folder in zip(contents, files, folders, strict=True)
    ]
    ids = sorted(categories[0])
    return FoundSets(
        parts[0],
        parts[1],
        {each: number for number, each in enumerate(ids, 1)},
        tuple(categories[0][each] for each in ids),
        tuple(dict.fromkeys(files)),
    )


def _coco_content(file: Path) -> dict[str, list[Entry]]:
    if not file.is_file():
        raise InputError(
            f"There is no {str(file)!r}. Name the files of annotations below root: data.options = "
            f"{{ train = 'annotations/instances_train2017.json', test = … }}."
        )
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{str(file)!r} is not JSON: {error}.") from None
    content: dict[str, list[Entry]] = {}
    for name in ("images", "annotations", "categories"):
        entries = found.get(name) if isinstance(found, dict) else None
        if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
            raise InputError(
                f"{str(file)!r} is not a file of COCO annotations: it has no list {name!r}."
            )
        _refuse_repeated(entries, name, file)
        content[name] = entries
    return content


def _categories(content: Mapping[str, list[Entry]], file: Path) -> dict[int, str]:
    return {
        _whole(each, "id", "category", file): str(_value(each, "name", "category", file))
        for each in content["categories"]
    }


def _coco_images(content: Mapping[str, list[Entry]], file: Path, folder: Path) -> list[FoundImage]:
    images, annotations = content["images"], content["annotations"]
    boxes: dict[object, list[FoundBox]] = {_value(each, "id", "image", file): [] for each in images}
    lost = []
    for number, found in enumerate(annotations):
        place = f"{file.name}, annotation {number} (id {found.get('id')})"
        image = found.get("image_id")
        if image in boxes:
            boxes[image].append(_coco_box(found, place))
        else:
            lost.append(f"{place} is of image {image}.")
    if lost:
        raise InputError(
            f"{str(file)!r}: {len(lost)} of {len(annotations)} annotations are of "
            f"images that it does not list:\n{spelled_out(lost)}"
        )
    return [
        FoundImage(
            folder / str(_value(each, "file_name", "image", file)),
            _whole(each, "width", "image", file),
            _whole(each, "height", "image", file),
            tuple(found),
        )
        for each, found in zip(images, boxes.values(), strict=True)
    ]


def _coco_box(found: Entry, place: str) -> FoundBox:
    bbox, area = found.get("bbox"), found.get("area")
    edges = tuple(map(_number, bbox)) if isinstance(bbox, list) else ()
    if len(edges) == 4:
        left, top, width, height = edges
        edges = (left, top, left + width, top + height)
    return FoundBox(
        place,
        found.get("category_id"),
        edges,
        bool(found.get("iscrowd", 0)),
        None if area is None else _number(area),
    )


def _number(found: object) -> float:
    """A number as it is, and NaN for anything else, which is refused with its place later."""
    return float(found) if isinstance(found, int | float) else math.nan


def _value(found: Entry, name: str, what: str, file: Path) -> object:
    if name not in found:
        raise InputError(
            f"{str(file)!r}: a{'n' * (what == 'image')} {what} has no {name!r}: {found}."
        )
    return found[name]


def _whole(found: Entry, name: str, what: str, file: Path) -> int:
    value = _value(found, name, what, file)
    if not isinstance(value, int | float) or not float(value).is_integer():
        raise InputError(
            f"{str(file)!r}: expected {name!r} to be a whole number but got {value!r}: {found}."
        )
    return int(value)


def _refuse_repeated(entries: Sequence[Entry], name: str, file: Path) -> None:
    counts = Counter(str(entry["id"]) for entry in entries if "id" in entry)
    repeated = [each for each, count in counts.items() if count > 1]
    if repeated:
        raise InputError(
            f"{str(file)!r}: {counted(len(repeated), 'id')} of {name} "
            f"occur{'s' * (len(repeated) == 1)} more than once, the first of them {repeated[0]}."
        )


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
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise InputError(f"{str(listing)!r} names {repeated[0]!r} more than once.")
    return names


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
    width, height = (_xml_number(tree, f"size/{name}", file) for name in ("width", "height"))
    name = tree.findtext("filename") or f"{file.stem}.jpg"
    boxes = tuple(
        _voc_box(each, number, file) for number, each in enumerate(tree.findall("object"))
    )
    return FoundImage(folder / Path(name).name, int(width), int(height), boxes)


def _voc_box(found: ElementTree.Element, number: int, file: Path) -> FoundBox:
    left, top, right, bottom = (
        _xml_number(found, f"bndbox/{edge}", file, number) for edge in _EDGES
    )
    return FoundBox(
        f"{file.name}, object {number}",
        (found.findtext("name") or "").strip(),
        (left - 1, top - 1, right, bottom),
        (found.findtext("difficult") or "0").strip() == "1",
    )


def _xml_number(
    found: ElementTree.Element, path: str, file: Path, number: int | None = None
) -> float:
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
    without a file of labels has no object. A label is a box, a polygon, or, where the YAML has
    `kpt_shape`, a box with points.
    """
    folders, names, points = _description(root / file)
    parts, labels = [], []
    for folder in folders:
        images = _images(root / folder, root / file)
        parts.append([_yolo_image(path, points) for path in images])
        labels += [label for path in images if (label := _label(path)).is_file()]
    return FoundSets(
        parts[0],
        parts[1],
        {key: number for number, key in enumerate(names, 1)},
        tuple(names.values()),
        (root / file, *labels),
        points,
    )


def _description(file: Path) -> tuple[tuple[str, str], dict[str, str], Points | None]:
    """The folders of training and test images, the names of the categories by their keys, and what
    is said of points."""
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
    names = table["names"] if isinstance(table["names"], dict) else dict(enumerate(table["names"]))
    called = {str(key): str(name) for key, name in names.items()}
    return (table["train"], table["val"]), called, _points(table, file)


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


def _yolo_image(path: Path, points: Points | None) -> FoundImage:
    try:
        with Image.open(path) as opened:
            width, height = shown_size(opened)
    except Exception:  # what is wrong with it is said with all others
        width, height = 1, 1
    file, boxes = _label(path), []
    if file.is_file():
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
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
