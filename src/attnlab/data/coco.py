"""Boxes in COCO's JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attnlab._errors import InputError
from attnlab._words import counted
from attnlab.data.box_checks import FoundBox, FoundImage, FoundSets, spelled_out


def read_coco(
    root: Path,
    train: str = "annotations/instances_train2017.json",
    test: str = "annotations/instances_val2017.json",
    train_images: str = "train2017",
    test_images: str = "val2017",
) -> FoundSets:
    """Files of annotations and folders of images below `root`; the defaults are COCO 2017's."""
    files = [root / train, root / test]
    contents = [_content(file) for file in files]
    categories = [_categories(content, file) for content, file in zip(contents, files, strict=True)]
    if categories[0] != categories[1]:
        other = sorted({*categories[0].items()} ^ {*categories[1].items()})
        raise InputError(
            f"{str(files[0])!r} and {str(files[1])!r} have different categories: {other[:3]}. "
            f"Expected the same ids with the same names in both."
        )
    folders = (root / train_images, root / test_images)
    parts = [
        _images(content, file, folder)
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


def _content(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise InputError(
            f"There is no {str(file)!r}. Name the files of annotations below root: data.options = "
            f"{{ train = 'annotations/instances_train2017.json', test = … }}."
        )
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{str(file)!r} is not JSON: {error}.") from None
    for name in ("images", "annotations", "categories"):
        if not isinstance(found, dict) or not isinstance(found.get(name), list):
            raise InputError(
                f"{str(file)!r} is not a file of COCO annotations: it has no list {name!r}."
            )
    content: dict[str, Any] = found
    return content


def _categories(content: dict[str, Any], file: Path) -> dict[int, str]:
    _refuse_repeated(content["categories"], "categories", file)
    return {
        _value(each, "id", "category", file): each.get("name") for each in content["categories"]
    }


def _images(content: dict[str, Any], file: Path, folder: Path) -> list[FoundImage]:
    _refuse_repeated(content["images"], "images", file)
    _refuse_repeated(content["annotations"], "annotations", file)
    boxes: dict[Any, list[FoundBox]] = {
        _value(image, "id", "image", file): [] for image in content["images"]
    }
    lost = []
    for number, found in enumerate(content["annotations"]):
        place = f"{file.name}, annotation {number} (id {found.get('id')})"
        if found.get("image_id") not in boxes:
            lost.append(f"{place} is of image {found.get('image_id')}.")
            continue
        boxes[found["image_id"]].append(_box(found, place))
    if lost:
        raise InputError(
            f"{str(file)!r}: {len(lost)} of {len(content['annotations'])} annotations are of "
            f"images that it does not list:\n{spelled_out(lost)}"
        )
    return [
        FoundImage(
            folder / _value(image, "file_name", "image", file),
            _value(image, "width", "image", file),
            _value(image, "height", "image", file),
            tuple(boxes[image["id"]]),
        )
        for image in content["images"]
    ]


def _box(found: dict[str, Any], place: str) -> FoundBox:
    try:
        numbers = tuple(float(number) for number in found.get("bbox") or ())
        area = float(found["area"]) if "area" in found else None
    except (TypeError, ValueError):
        numbers, area = (), None
    if len(numbers) == 4:
        left, top, width, height = numbers
        numbers = (left, top, left + width, top + height)
    return FoundBox(
        place,
        found.get("category_id"),
        numbers,
        bool(found.get("iscrowd", 0)),
        area,
    )


def _value(found: dict[str, Any], name: str, what: str, file: Path) -> Any:
    if name not in found:
        raise InputError(
            f"{str(file)!r}: a{'n' * (what == 'image')} {what} has no {name!r}: {found}."
        )
    return found[name]


def _refuse_repeated(entries: Sequence[dict[str, Any]], name: str, file: Path) -> None:
    counts = Counter(entry.get("id") for entry in entries if "id" in entry)
    repeated = [each for each, count in counts.items() if count > 1]
    if repeated:
        raise InputError(
            f"{str(file)!r}: {counted(len(repeated), 'id')} of {name} "
            f"occur{'s' * (len(repeated) == 1)} more than once, the first of them {repeated[0]}."
        )
