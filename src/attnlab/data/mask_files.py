"""Which images have which masks, as other people store them: folders, VOC's folders, and data sets
that `datasets` reads."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnlab._checksums import files_checksum
from attnlab._errors import InputError, OptionError, nearest
from attnlab._words import listed
from attnlab.data.config import DataConfig
from attnlab.data.known import hub_splits, two_splits
from attnlab.data.pictures import ImageRow, find_images, left_out

VOC_CLASSES = (
    *("background", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat"),
    *("chair", "cow", "diningtable", "dog", "horse", "motorbike", "person", "pottedplant"),
    *("sheep", "sofa", "train", "tvmonitor"),
)
_NAMES = "classes.txt"


@dataclass(frozen=True)
class MaskFiles:
    """One image and its mask, as files or as rows of a data set."""

    image: Path | ImageRow
    mask: Path | ImageRow


@dataclass(frozen=True)
class FoundMasks:
    """What is in a data set, before it is checked."""

    train: list[MaskFiles]
    test: list[MaskFiles]
    names: tuple[str, ...] = ()
    """Of the classes; empty where they are only numbered."""
    notes: tuple[str, ...] = ()
    others: tuple[Path, ...] = ()
    """Further files that decide what the data are."""

    def checksum(self, root: str) -> str:
        """SHA-256 of all files; of rows, of their content and of the names of the classes."""
        sources = [f for each in (*self.train, *self.test) for f in (each.image, each.mask)]
        files = [source for source in sources if isinstance(source, Path)]
        if files:
            return files_checksum(root, [*self.others, *files])
        whole = hashlib.sha256(repr((len(self.train), self.names)).encode())
        for source in sources:
            if isinstance(source, ImageRow):
                whole.update(hashlib.sha256(source.content()).digest())
        return whole.hexdigest()


def read_mask_folder(
    config: DataConfig, images: str = "images", masks: str = "masks"
) -> FoundMasks:
    """`train/images/a.jpg` with `train/masks/a.png`, and so on; `test` or `val` beside `train`. The
    file `classes.txt`, if there is one, has the name of a class on each line."""
    root = config.folder()
    test = next((name for name in ("test", "val") if (root / name).is_dir()), "test")
    trained, noted = _pairs(root, "train", images, masks)
    tested, also_noted = _pairs(root, test, images, masks)
    notes = [*noted, *also_noted]
    if (root / "val").is_dir() and test == "test":
        notes.append("Not used: val/, because there is test/.")
    listing = root / _NAMES
    if not listing.is_file():
        return FoundMasks(trained, tested, notes=tuple(notes))
    return FoundMasks(trained, tested, _names(listing), tuple(notes), (listing,))


def _names(listing: Path) -> tuple[str, ...]:
    """The names of classes, one on each line."""
    lines = listing.read_text("utf-8-sig").splitlines()
    return tuple(line.strip() for line in lines if line.strip())


def _pairs(root: Path, part: str, images: str, masks: str) -> tuple[list[MaskFiles], list[str]]:
    """The images of a part with their masks, and what was left out."""
    folder = root / part / images
    if not folder.is_dir():
        raise InputError(
            f"There is no folder {str(folder)!r}. Expected images in {images}/ and their masks in "
            f"{masks}/ below train/ and test/ (or val/); data.options name other folders."
        )
    found = find_images(folder)
    beside = root / part / masks
    pairs = [
        MaskFiles(image, (beside / image.relative_to(folder)).with_suffix(".png"))
        for image in found.images
    ]
    return pairs, left_out(root, part, [found])


def read_voc_masks(
    config: DataConfig, train: str = "train", test: str = "val", masks: str = "SegmentationClass"
) -> FoundMasks:
    """VOC's folder of a year: lists in ImageSets/Segmentation, JPEGImages, SegmentationClass."""
    root = config.folder()
    lists = [root / "ImageSets" / "Segmentation" / f"{part}.txt" for part in (train, test)]
    for listing in lists:
        if not listing.is_file():
            raise InputError(
                f"There is no {str(listing)!r}. Expected the folder of a year, such as VOC2012, as "
                f"root, and data.options.train and test to name lists in ImageSets/Segmentation."
            )
    trained, tested = (
        [
            MaskFiles(root / "JPEGImages" / f"{name}.jpg", root / masks / f"{name}.png")
            for name in listing.read_text("utf-8").split()
        ]
        for listing in lists
    )
    return FoundMasks(trained, tested, VOC_CLASSES, others=tuple(lists))


def read_hub_masks(
    config: DataConfig,
    train: str = "train",
    test: str | None = None,
    image: str = "image",
    mask: str | None = None,
    classes: str | None = None,
) -> FoundMasks:
    """A data set that `datasets` reads, with two columns of images: `image`, and `mask`, the only
    other one unless told. `test` is the split test, or validation, unless told. `classes` is a file
    with the name of a class on each line; classes.txt of the folder if it is there."""
    if config.root is None:
        raise OptionError(
            f"Data {config.name!r} needs the name or folder of a data set: root = 'my-dataset'."
        )
    splits = hub_splits(config, config.root)
    testing, notes = two_splits(splits, config.root, train, test)
    columns = _columns(splits[train].features, config.root, image, mask)
    trained, tested = (_rows(splits[name], name, columns, config.root) for name in (train, testing))
    listing = Path(config.root, _NAMES) if classes is None else Path(classes)
    if classes is not None and not listing.is_file():
        raise InputError(
            f"There is no file {classes!r}, which data.options.classes names. Expected a file with "
            f"the name of a class on each line."
        )
    names = _names(listing) if listing.is_file() else ()
    return FoundMasks(trained, tested, names, notes)


def _columns(
    features: Mapping[str, object], root: str, image: str, mask: str | None
) -> tuple[str, str]:
    """The columns of images and of masks."""
    import datasets

    images = [name for name, feature in features.items() if isinstance(feature, datasets.Image)]
    for option, name in (("image", image), ("mask", mask)):
        if name is not None and name not in images:
            raise InputError(
                f"{root!r} has no column of images {name!r}.{nearest(name, images)} Its columns of "
                f"images are {listed(images) or 'none'}, among {', '.join(features)}; "
                f"data.options.{option} names another."
            )
    others = [name for name in images if name != image]
    if mask is None and len(others) != 1:
        raise InputError(
            f"Expected {root!r} to have one column of images beside {image!r}, the masks, but it "
            f"has {listed(others) or 'none'}. Set data.options.mask to its name."
        )
    return image, mask or others[0]


def _rows(split: Any, name: str, columns: tuple[str, str], root: str) -> list[MaskFiles]:
    import datasets

    # As they are stored: its own decoding turns a mask with its image, or not, without a word.
    parts = [
        split.select_columns([column]).cast_column(column, datasets.Image(decode=False))
        for column in columns
    ]
    whats = [f"{root} ({name}, column {column})" for column in columns]
    return [
        MaskFiles(*(ImageRow(part, row, w) for part, w in zip(parts, whats, strict=True)))
        for row in range(len(split))
    ]


FORMATS: dict[str, Callable[..., FoundMasks]] = {
    "masks": read_mask_folder,
    "voc-masks": read_voc_masks,
    "hf-masks": read_hub_masks,
}
