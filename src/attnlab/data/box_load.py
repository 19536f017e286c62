"""Load images with boxes by settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from attnlab._errors import OptionError, check_options, unknown_name
from attnlab.data.batches import Data, Facts
from attnlab.data.box_checks import FoundSets, checked_images, some
from attnlab.data.box_files import read_coco, read_voc
from attnlab.data.boxes import BoxData
from attnlab.data.config import DataConfig
from attnlab.data.memory import MEMORY_LIMIT
from attnlab.data.shapes import load_shapes, shapes_checksum
from attnlab.data.yolo_files import read_yolo
from attnlab.networks.preprocessing import IMAGENET

FORMATS: dict[str, Callable[..., FoundSets]] = {
    "coco": read_coco,
    "voc": read_voc,
    "yolo": read_yolo,
}
_BAD = ("error", "drop")


def load_boxes(config: DataConfig) -> Data:
    """The images of `config`; every problem that can be seen before training is an error here."""
    _check_augmentation(config)
    if config.name == "shapes":
        return load_shapes(config)
    found = _found(config)
    bad = str(config.options.get("bad", "error"))
    checked = [
        checked_images(part, found.labels, bad, f"{config.name} ({what})", found.points)
        for part, what in ((found.train, "training"), (found.test, "test"))
    ]
    train, test = (each.images for each in checked)
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
        found.checksum(config.folder()),
        found.categories,
        (*found.notes, *(note for each in checked for note in each.notes)),
        points=found.points,
    )
    return BoxData(facts, train, test, config.augmentation)


def boxes_checksum(config: DataConfig) -> str:
    """Return what tells these images from others."""
    if config.name == "shapes":
        return shapes_checksum(config)
    return _found(config).checksum(config.folder())


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
    found = reader(config.folder(), **options)
    return replace(
        found,
        train=some(found.train, config.train_subset),
        test=some(found.test, config.test_subset),
    )


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
