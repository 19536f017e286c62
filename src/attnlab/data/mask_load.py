"""Load images with masks by settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from attnlab._errors import InputError, OptionError, check_options
from attnlab._spread import evenly_spread
from attnlab._words import listed
from attnlab.data.batches import Facts
from attnlab.data.config import DataConfig
from attnlab.data.mask_files import FORMATS, FoundMasks, MaskFiles
from attnlab.data.masks import IGNORED, MaskData, MaskImage, blind_overlap, class_counts
from attnlab.data.memory import MEMORY_LIMIT, lacking_classes
from attnlab.data.orientation import Orientations
from attnlab.data.pictures import ImageRow, class_numbers, opened
from attnlab.data.shapes import load_shape_masks, shapes_checksum
from attnlab.networks.preprocessing import IMAGENET, Preprocessing


def load_masks(config: DataConfig, preprocessing: Preprocessing | None = None) -> MaskData:
    """The images of `config`, whole; `preprocessing` is that of a trained network, of which mean
    and deviation count."""
    if config.name == "shape-masks":
        return load_shape_masks(config)
    found = _found(config)
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
        found.checksum(str(config.root)),
        names,
        (
            *found.notes,
            *train.notes,
            *test.notes,
            *lacking_classes(there[0], there[1], names, subsets),
        ),
        blind=blind_overlap(test.counts),
    )
    in_memory = sum(4 * h * w for h, w in (*train.sizes, *test.sizes)) <= MEMORY_LIMIT
    trained, tested = (_held(part.images) if in_memory else part.images for part in (train, test))
    return MaskData(facts, trained, tested, config.augmentation, _side(config, train, title))


def masks_checksum(config: DataConfig) -> str:
    """Return what tells these images from others."""
    if config.name == "shape-masks":
        return shapes_checksum(config)
    return _found(config).checksum(str(config.root))


def _found(config: DataConfig) -> FoundMasks:
    reader = FORMATS[config.name]
    check_options(f"Data {config.name!r}", reader, config.options, skip=("config",))
    found = reader(config, **config.options)
    train, test = (
        [part[i] for i in evenly_spread(len(part), number)]
        for part, number in ((found.train, config.train_subset), (found.test, config.test_subset))
    )
    return replace(found, train=train, test=test)


@dataclass(frozen=True)
class _Part:
    images: list[MaskImage]
    sizes: list[tuple[int, int]]
    """Height and width of each."""
    classes: dict[int, Path | ImageRow]
    """Which classes occur, with the first mask that has them."""
    counts: Tensor
    """How many pixels have each class."""
    notes: tuple[str, ...]


def _checked(files: Sequence[MaskFiles], what: str) -> _Part:
    """Every mask is read: what is wrong with one is said before anything is trained."""
    if not files:
        raise InputError(f"{what} has no image.")
    missing = [
        str(f)
        for each in files
        for f in (each.image, each.mask)
        if isinstance(f, Path) and not f.is_file()
    ]
    if missing:
        raise InputError(
            f"{what}: {len(missing)} files are not there: {listed(missing)}. Expected a mask of "
            f"the same name, ending in .png, for every image."
        )
    classes: dict[int, Path | ImageRow] = {}
    counts = torch.zeros(IGNORED, dtype=torch.long)
    sizes = []
    orientations = Orientations()
    for each in files:
        mask = class_numbers(each.mask)
        opened(each.image, partial(_check_size, each, mask.shape, orientations, what))
        sizes.append((mask.shape[0], mask.shape[1]))
        counted = class_counts(torch.from_numpy(mask))
        counts += counted
        for number in counted.nonzero().flatten().tolist():
            classes.setdefault(number, each.mask)
    if not classes:
        raise InputError(f"{what}: no pixel of {len(files)} masks has a class: all are {IGNORED}.")
    as_shown = orientations.as_shown(what)
    images = [MaskImage(each.image, each.mask, as_shown) for each in files]
    return _Part(images, sizes, classes, counts, orientations.notes(what))


def _check_size(
    files: MaskFiles,
    sides: tuple[int, ...],
    orientations: Orientations,
    what: str,
    image: Image.Image,
) -> None:
    height, width = sides
    if not orientations.fits(files.image, image, (width, height)):
        raise InputError(
            f"{what}: {str(files.mask)!r} is {width}×{height}, but its image is "
            f"{image.size[0]}×{image.size[1]}."
        )


def _class_names(found: FoundMasks, train: _Part, test: _Part, title: str) -> tuple[str, ...]:
    """Return the names of all classes, or their numbers where they have none; a mask has no other
    class."""
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
