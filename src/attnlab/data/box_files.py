"""Boxes as other people's files have them: COCO's JSON and Pascal VOC's XML."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

from attnlab._errors import InputError
from attnlab._words import counted
from attnlab.data.box_checks import FoundBox, FoundImage, FoundSets, spelled_out

Entry = Mapping[str, object]
"""One image, annotation or category of a file of COCO."""
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
