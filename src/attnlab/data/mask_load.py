"""Load images with masks by settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from PIL import Image

from attnlab._checksums import files_checksum
from attnlab._errors import InputError, OptionError, check_options
from attnlab._spread import evenly_spread
from attnlab._words import listed
from attnlab.data.batches import Facts
from attnlab.data.config import DataConfig
from attnlab.data.masks import IGNORED, MaskData, MaskImage
from attnlab.data.memory import MEMORY_LIMIT, lacking_classes
from attnlab.data.orientation import Orientations
from attnlab.data.pictures import class_numbers, find_images, left_out
from attnlab.data.shapes import load_shape_masks, shapes_checksum
from attnlab.networks.preprocessing import IMAGENET, Preprocessing

VOC_CLASSES = (
    *("background", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat"),
    *("chair", "cow", "diningtable", "dog", "horse", "motorbike", "person", "pottedplant"),
    *("sheep", "sofa", "train", "tvmonitor"),
)


@dataclass(frozen=True)
class MaskFiles:
    """One image and its mask, as files."""

    image: Path
    mask: Path


@dataclass(frozen=True)
class FoundMasks:
    """What is in the folder of a data set, before it is checked."""

    train: list[MaskFiles]
    test: list[MaskFiles]
    names: tuple[str, ...] = ()
    """Of the classes; empty where they are only numbered."""
    notes: tuple[str, ...] = ()
    others: tuple[Path, ...] = ()
    """Further files that decide what the data are."""

    def checksum(self, root: Path) -> str:
        """SHA-256 of all files."""
        pairs = (*self.train, *self.test)
        return files_checksum(
            root, [*self.others, *(f for each in pairs for f in (each.image, each.mask))]
        )


def read_mask_folder(root: Path, images: str = "images", masks: str = "masks") -> FoundMasks:
    """`train/images/a.jpg` with `train/masks/a.png`, and so on; `test` or `val` beside `train`. The
    file `classes.txt`, if there is one, has the name of a class on each line."""
    test = next((name for name in ("test", "val") if (root / name).is_dir()), "test")
    trained, noted = _pairs(root, "train", images, masks)
    tested, also_noted = _pairs(root, test, images, masks)
    notes = [*noted, *also_noted]
    if (root / "val").is_dir() and test == "test":
        notes.append("Not used: val/, because there is test/.")
    listing = root / "classes.txt"
    if not listing.is_file():
        return FoundMasks(trained, tested, notes=tuple(notes))
    names = tuple(line.strip() for line in listing.read_text("utf-8").splitlines() if line.strip())
    return FoundMasks(trained, tested, names, tuple(notes), (listing,))


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


def read_voc_masks(root: Path, train: str = "train", test: str = "val") -> FoundMasks:
    """VOC's folder of a year: lists in ImageSets/Segmentation, JPEGImages, SegmentationClass."""
    lists = [root / "ImageSets" / "Segmentation" / f"{part}.txt" for part in (train, test)]
    for listing in lists:
        if not listing.is_file():
            raise InputError(
                f"There is no {str(listing)!r}. Expected the folder of a year, such as VOC2012, as "
                f"root, and data.options.train and test to name lists in ImageSets/Segmentation."
            )
    trained, tested = (
        [
            MaskFiles(
                root / "JPEGImages" / f"{name}.jpg", root / "SegmentationClass" / f"{name}.png"
            )
            for name in listing.read_text("utf-8").split()
        ]
        for listing in lists
    )
    return FoundMasks(trained, tested, VOC_CLASSES, others=tuple(lists))


FORMATS: dict[str, Callable[..., FoundMasks]] = {
    "masks": read_mask_folder,
    "voc-masks": read_voc_masks,
}


def load_masks(config: DataConfig, preprocessing: Preprocessing | None = None) -> MaskData:
    """The images of `config`, whole; `preprocessing` is that of a trained network, of which mean
    and deviation count."""
    if config.name == "shape-masks":
        return load_shape_masks(config)
    found, root = _found(config)
    title = config.title
    train, test = (
        _checked(part, f"{title} ({name})")
        for part, name in ((found.train, "training"), (found.test, "test"))
    )
    names = _class_names(found, train, test, title)
    _check_several(train, title)
    _check_gaps(train, found, title)
    mean, std = IMAGENET if preprocessing is None else (preprocessing.mean, preprocessing.std)
    subsets = config.train_subset, config.test_subset
    there = [torch.tensor(sorted(part.classes)) for part in (train, test)]
    facts = Facts(
        title,
        "masks",
        len(names),
        (3, *test.sizes[0]),
        len(train.images),
        len(test.images),
        tuple(mean),
        tuple(std),
        found.checksum(root),
        names,
        (
            *found.notes,
            *train.notes,
            *test.notes,
            *lacking_classes(there[0], there[1], names, subsets),
        ),
    )
    in_memory = sum(4 * h * w for h, w in (*train.sizes, *test.sizes)) <= MEMORY_LIMIT
    trained, tested = (_held(part.images) if in_memory else part.images for part in (train, test))
    return MaskData(facts, trained, tested, config.augmentation, _side(config, train, title))


def masks_checksum(config: DataConfig) -> str:
    """Return what tells these images from others."""
    if config.name == "shape-masks":
        return shapes_checksum(config)
    found, root = _found(config)
    return found.checksum(root)


def _found(config: DataConfig) -> tuple[FoundMasks, Path]:
    reader = FORMATS[config.name]
    check_options(f"Data {config.name!r}", reader, config.options, skip=("root",))
    root = config.folder()
    found = reader(root, **config.options)
    train, test = (
        [part[i] for i in evenly_spread(len(part), number)]
        for part, number in ((found.train, config.train_subset), (found.test, config.test_subset))
    )
    return replace(found, train=train, test=test), root


@dataclass(frozen=True)
class _Part:
    images: list[MaskImage]
    sizes: list[tuple[int, int]]
    """Height and width of each."""
    classes: dict[int, Path]
    """Which classes occur, with the first mask that has them."""
    notes: tuple[str, ...]


def _checked(files: Sequence[MaskFiles], what: str) -> _Part:
    """Every mask is read: what is wrong with one is said before anything is trained."""
    if not files:
        raise InputError(f"{what} has no image.")
    missing = [str(f) for each in files for f in (each.image, each.mask) if not f.is_file()]
    if missing:
        raise InputError(
            f"{what}: {len(missing)} files are not there: {listed(missing)}. Expected a mask of "
            f"the same name, ending in .png, for every image."
        )
    classes: dict[int, Path] = {}
    sizes = []
    orientations = Orientations()
    for each in files:
        mask = class_numbers(each.mask)
        with Image.open(each.image) as image:
            if not orientations.fits(each.image, image, (mask.shape[1], mask.shape[0])):
                raise InputError(
                    f"{what}: {str(each.mask)!r} is {mask.shape[1]}×{mask.shape[0]}, but its image "
                    f"is {image.size[0]}×{image.size[1]}."
                )
        sizes.append((mask.shape[0], mask.shape[1]))
        for number in torch.from_numpy(mask).unique().tolist():
            if number != IGNORED:
                classes.setdefault(number, each.mask)
    if not classes:
        raise InputError(f"{what}: no pixel of {len(files)} masks has a class: all are {IGNORED}.")
    as_shown = orientations.as_shown(what)
    images = [MaskImage(each.image, each.mask, as_shown) for each in files]
    return _Part(images, sizes, classes, orientations.notes(what))


def _class_names(found: FoundMasks, train: _Part, test: _Part, title: str) -> tuple[str, ...]:
    """Of all classes, or their numbers where they have no names; a mask has no other class."""
    names = found.names or tuple(map(str, range(max(train.classes) + 1)))
    for part, what in ((train, "training"), (test, "test")):
        _check_classes(part, names, f"{title} ({what})")
    return names


def _check_classes(part: _Part, names: Sequence[str], what: str) -> None:
    largest = max(part.classes)
    if largest >= len(names):
        raise InputError(
            f"{what}: {str(part.classes[largest])!r} has class {largest}, but there are only "
            f"{len(names)} classes, 0 to {len(names) - 1}. Expected every class in the training "
            f"masks or in classes.txt; pixels that do not count are {IGNORED}."
        )


def _check_several(train: _Part, title: str) -> None:
    """Masks of 0 and 255, as many programs write them, would have one class and nothing to
    learn."""
    if len(train.classes) == 1:
        only = next(iter(train.classes))
        raise InputError(
            f"{title}: no pixel of the training masks has another class than {only}; pixels that "
            f"are {IGNORED} do not count. Expected two classes or more: of masks with 0 and "
            f"{IGNORED}, write {IGNORED} as 1."
        )


def _check_gaps(train: _Part, found: FoundMasks, title: str) -> None:
    """Masks of 0 and 254, or of gaps, are colours and not classes."""
    free = [number for number in range(max(train.classes)) if number not in train.classes]
    if free and not found.names:
        raise InputError(
            f"{title}: no pixel of the training masks has class {listed(free)}, but some have "
            f"class {max(train.classes)}. Expected classes that are numbered from 0 without a gap, "
            f"or their names in classes.txt, one on each line."
        )


def _side(config: DataConfig, train: _Part, title: str) -> tuple[int, int]:
    """The size of the crops of training."""
    if config.size is not None:
        return config.size, config.size
    if len(set(train.sizes)) > 1:
        raise OptionError(
            f"{title}: training images have different sizes, {train.sizes[0][1]}×"
            f"{train.sizes[0][0]} the first. Set data.size, the side of the crops in training."
        )
    return train.sizes[0]


def _held(images: Sequence[MaskImage]) -> list[MaskImage]:
    return [MaskImage(each.pixels(), each.classes()) for each in images]
