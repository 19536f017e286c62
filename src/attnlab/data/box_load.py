"""Load images with boxes by settings."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from attnlab._errors import InputError, OptionError, check_options, unknown_name
from attnlab._words import counted
from attnlab.data.batches import Data, Facts
from attnlab.data.box_checks import (
    FoundBox,
    FoundImage,
    FoundSets,
    checked_images,
    some,
    spelled_out,
)
from attnlab.data.box_files import read_voc, read_yolo
from attnlab.data.boxes import BoxData
from attnlab.data.config import DataConfig
from attnlab.data.shapes import load_shapes, shapes_checksum
from attnlab.networks.preprocessing import IMAGENET


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


FORMATS: dict[str, Callable[..., FoundSets]] = {
    "coco": read_coco,
    "voc": read_voc,
    "yolo": read_yolo,
}
MEMORY_LIMIT = 2**30
"""Bytes of pixels up to which images are read into memory."""
_BAD = ("error", "drop")


def load_boxes(config: DataConfig) -> Data:
    """The images of `config`; every problem that can be seen before training is an error here."""
    _check_augmentation(config)
    if config.name == "shapes":
        return load_shapes(config)
    found = _found(config)
    bad = str(config.options.get("bad", "error"))
    train = checked_images(found.train, found.labels, bad, f"{config.name} (training)")
    test = checked_images(found.test, found.labels, bad, f"{config.name} (test)")
    if sum(3 * image.width * image.height for image in (*found.train, *found.test)) <= MEMORY_LIMIT:
        train, test = ([replace(image, image=image.pixels()) for image in p] for p in (train, test))
    first = found.test[0]
    facts = Facts(
        config.name,
        "boxes",
        len(found.categories),
        (3, first.height, first.width),
        len(train),
        len(test),
        *IMAGENET,
        found.checksum(_root(config)),
        found.categories,
    )
    return BoxData(facts, train, test, config.augmentation)


def boxes_checksum(config: DataConfig) -> str:
    """Return what tells these images from others."""
    if config.name == "shapes":
        return shapes_checksum(config)
    return _found(config).checksum(_root(config))


def _found(config: DataConfig) -> FoundSets:
    reader = FORMATS[config.name]
    options = {name: value for name, value in config.options.items() if name != "bad"}
    check_options(f"Data {config.name!r}", reader, options, skip=("root",))
    if config.options.get("bad", "error") not in _BAD:
        raise unknown_name("option bad =", config.options["bad"], _BAD)
    if config.size is not None:
        raise OptionError(
            f"data.size is not for {config.name!r}: detectors resize by themselves, see the task's "
            f"options min_size and max_size."
        )
    found = reader(_root(config), **options)
    return replace(
        found,
        train=some(found.train, config.train_subset),
        test=some(found.test, config.test_subset),
    )


def _root(config: DataConfig) -> Path:
    if config.root is None:
        raise OptionError(f"Data {config.name!r} needs its folder, root = 'path/of/the/data'.")
    root = Path(config.root)
    if not root.is_dir():
        raise InputError(f"There is no folder {str(root)!r}.")
    return root


def _check_augmentation(config: DataConfig) -> None:
    augmentation = config.augmentation
    if augmentation.crop != "none":
        raise OptionError(
            f"crop = {augmentation.crop!r} would cut boxes: data {config.name!r} takes crop = "
            f"'none' only. The recipe 'detection_1x' sets it; else write data.augmentation = "
            f"{{ crop = 'none' }}."
        )
    if augmentation.transform is not None:
        raise OptionError(
            f"A transform would move pixels and not boxes: data {config.name!r} takes none."
        )
