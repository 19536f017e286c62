"""Load data by settings, or by what a command or a call names: a folder, an archive, a data set.

Nothing is fetched unless `download` says so.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import torch

from attnlab._checksums import file_checksum
from attnlab._errors import InputError, OptionError, nearest
from attnlab._imported import is_path
from attnlab.data import known
from attnlab.data.augment import augmented, checked
from attnlab.data.batches import Data
from attnlab.data.box_load import boxes_checksum, load_boxes
from attnlab.data.config import BOXES, MASKS, NAMES, TEXT, DataConfig
from attnlab.data.embedded import digit_angles, digit_pairs, digits, fake
from attnlab.data.folder import find_files, load_folder
from attnlab.data.known import SETS, load_hub
from attnlab.data.mask_load import load_masks, masks_checksum
from attnlab.data.memory import (
    MemoryData,
    Pixels,
    Statistics,
    channel_statistics,
    check_pixels,
    lacking_classes,
    number_of_classes,
    pixel_checksum,
    subset,
)
from attnlab.data.own import load_own
from attnlab.data.photos import photos, photos_checksum
from attnlab.data.pictures import resized
from attnlab.data.shards import find_shards, load_shards, shards_checksum
from attnlab.data.stream import UndividedData
from attnlab.data.text import load_text, text_checksum
from attnlab.networks.preprocessing import IMAGENET, Preprocessing

_EMBEDDED = {"digits": digits, "digit-pairs": digit_pairs, "digit-angles": digit_angles}


def load_data(config: DataConfig, preprocessing: Preprocessing | None = None) -> Data:
    """The images of `config`; every problem that can be seen before training is an error here.

    With the `preprocessing` of a trained network, images have its size, mean and deviation in the
    place of their own.
    """
    if config.name in BOXES:
        return checked(load_boxes(config), config.augmentation)
    if config.name in MASKS:
        return checked(load_masks(config, preprocessing), config.augmentation)
    if config.name in TEXT:
        return checked(load_text(config), config.augmentation)
    if config.name == "shards":
        return augmented(load_shards(config, preprocessing), config.augmentation)
    if config.name == "folder":
        data = load_folder(config, data_checksum(config), preprocessing)
        return augmented(data, config.augmentation)
    return augmented(_load_pixels(config, preprocessing), config.augmentation)


def _load_pixels(config: DataConfig, preprocessing: Preprocessing | None) -> Data:
    """The images of a source that is held in memory."""
    if config.augmentation.crop == "resized":
        raise OptionError(
            "crop = 'resized' cuts from the original photographs: it is for data 'folder' and "
            "'shards'. Use crop = 'padded' or 'none'."
        )
    train, test, outputs = read_pixels(config, preprocessing)
    check_pixels(train, outputs, f"{config.title} (training)")
    check_pixels(test, outputs, f"{config.title} (test)")
    train = subset(train, config.train_subset, f"{config.title} (training)")
    test = subset(test, config.test_subset, f"{config.title} (test)")
    if preprocessing is not None:
        train, test = (_prepared(part, preprocessing) for part in (train, test))
        statistics: Statistics = preprocessing.mean, preprocessing.std
    else:
        if config.size is not None and config.name != "photos":
            sides = config.size, config.size
            train, test = (_resized(part, sides) for part in (train, test))
        statistics = _statistics(config, train)
    return MemoryData(
        config.title,
        train,
        test,
        outputs,
        data_checksum(config),
        config.augmentation,
        statistics,
        config.stl_crop if config.name == "stl10" and config.size is None else None,
        _noticed(config, train, test, outputs),
        random=config.name == "fake",
    )


def read_pixels(
    config: DataConfig, preprocessing: Preprocessing | None = None
) -> tuple[Pixels, Pixels, int]:
    """Training and test images of a source that is held in memory, whole, and the number of
    classes, labels or values. Made ones are made in the size that the network takes."""
    if config.name in known.SETS:
        return known.torchvision_set(config.name, config.root or "data", config.download)
    if config.name == "npz":
        return known.archive(_file(config))
    if config.name == "hf":
        return load_hub(config)
    if config.name == "fake":
        sides = (32, 32) if preprocessing is None else preprocessing.size[1:]
        numbers = config.train_subset or 1024, config.test_subset or 256
        return fake(config.classes, *numbers, sides)
    if config.name == "photos":
        return photos(config)
    if is_path(config.name):
        return load_own(config)
    return _EMBEDDED[config.name]()


def data_checksum(config: DataConfig) -> str:
    """Return what tells these images from others, the same on every machine and known before
    training.

    Of files it is their content, looked up by path, size and time where it was computed before;
    of torchvision's data sets, which torchvision itself checks, their published checksum, so that
    they need not be there; of all others the pixels and targets.
    """
    if config.name in known.SETS:
        archive = known.archive_of(config.name, config.root)
        if archive is not None and not config.download:
            return file_checksum(archive)
        return f"md5:{known.SETS[config.name].md5}"
    if config.name in BOXES:
        return boxes_checksum(config)
    if config.name in MASKS:
        return masks_checksum(config)
    if config.name in TEXT:
        return text_checksum(config)
    if config.name == "npz":
        return file_checksum(_file(config))
    if config.name == "folder":
        return find_files(config).checksum(config.hash_all)
    if config.name == "shards":
        return shards_checksum(config)
    if config.name == "photos":
        return photos_checksum(config)
    if config.name == "digit-angles":
        # Turning rounds, and a processor may round otherwise: the digits that are turned count.
        return f"turned:{data_checksum(DataConfig(name='digits'))}"
    return _of_pixels(config.model_copy(update={"augmentation": DataConfig().augmentation}))


def _of_pixels(config: DataConfig) -> str:
    return _cached(config.model_dump_json())


@lru_cache(maxsize=16)
def _cached(settings: str) -> str:
    train, test, _ = read_pixels(DataConfig.model_validate_json(settings))
    return pixel_checksum(train, test)


def _statistics(config: DataConfig, train: Pixels) -> Statistics:
    if config.name in known.SETS:
        return known.CIFAR
    # Not of the parts themselves: pictures of any kind are to be styled later.
    return IMAGENET if config.name == "photos" else channel_statistics(train.images)


def _noticed(config: DataConfig, train: Pixels, test: Pixels, outputs: int) -> tuple[str, ...]:
    """What was left out, and classes that a subset or a whole part lacks."""
    notes = (*train.notes, *test.notes)
    if train.kind != "class" or config.name == "fake":  # whose classes mean nothing
        return notes
    names = [str(number) for number in range(outputs)]
    subsets = config.train_subset, config.test_subset
    return (*notes, *lacking_classes(train.targets, test.targets, names, subsets))


def _file(config: DataConfig) -> Path:
    if config.root is None:
        raise OptionError("Data 'npz' needs the path of a numpy archive, root = 'images.npz'.")
    path = Path(config.root)
    if not path.is_file():
        raise InputError(f"There is no file {str(path)!r}. Expected a numpy archive (.npz).")
    return path


def _prepared(pixels: Pixels, preprocessing: Preprocessing) -> Pixels:
    """Images with the channels and sides that a network takes. Grey ones can be made of coloured
    ones; other channels cannot be made up."""
    from torchvision.transforms.v2 import functional as F

    channels, height, width = preprocessing.size
    there = pixels.images.shape[1]
    if (there, channels) == (3, 1):
        pixels = replace(pixels, images=F.rgb_to_grayscale(pixels.images))
    elif there != channels:
        raise InputError(
            f"The network takes images of {channels} channels, and these have {there}. Expected a "
            f"network of 1 or 3 channels; for others give your own batches to the Python function."
        )
    return _resized(pixels, (height, width))


def _resized(pixels: Pixels, sides: tuple[int, int]) -> Pixels:
    # In parts, because resizing holds every image a second time, as floating point.
    parts = [resized(part, sides) for part in pixels.images.split(1024)]
    return replace(pixels, images=torch.cat(parts))


_PHOTOGRAPHS = ("folder", "shards", "photos")
"""Kinds that have no size of their own."""


def data_config(data: str | Path, root: str | Path | None = None) -> DataConfig | None:
    """The settings of the data that `data` names, as a study would have them; None of a folder that
    is not divided into training and test images."""
    path = Path(data)
    if path.is_dir():
        divided = (path / "train").is_dir() and any((path / n).is_dir() for n in ("test", "val"))
        return DataConfig(name="folder", root=str(path)) if divided else None
    if path.suffix == ".npz":
        return DataConfig(name="npz", root=str(path))
    name = str(data)
    if name not in NAMES and not is_path(name):
        raise InputError(
            f"Expected the data to be a folder of images, an .npz archive or one of "
            f"{', '.join(NAMES)} but got {name!r}, which is none of them.{nearest(name, NAMES)}"
        )
    return DataConfig(name=name, root=None if root is None else str(root))


def is_text(data: str | Path, root: str | Path | None = None) -> bool:
    """Return whether `data` names text and not images."""
    config = data_config(data, root)
    return config is not None and config.name in TEXT


def needs_preprocessing(data: str | Path, root: str | Path | None = None) -> bool:
    """Return whether the images have no size of their own, so that the network must say one."""
    config = data_config(data, root)
    return config is None or config.name in (*_PHOTOGRAPHS, "fake")


def load_named(
    data: str | Path, root: str | Path | None = None, preprocessing: Preprocessing | None = None
) -> Data:
    """The images that `data` names, prepared for a network, or as they are if None."""
    config = data_config(data, root)
    if config is None:
        if preprocessing is None:
            raise InputError(f"The photographs in {str(data)!r} need a size: pass size=224.")
        return UndividedData(Path(data), preprocessing)
    if config.name in ("folder", "shards") and preprocessing is not None:
        config = config.model_copy(update={"size": preprocessing.size[1]})
    return load_data(config, preprocessing)


def outputs_of(data: str | Path, root: str | Path | None = None) -> int | None:
    """Return how many outputs a network for these data needs; None where nothing is known of them,
    or where what is known need not be what a network learned."""
    config = data_config(data, root)
    if config is None or config.name in ("fake", "photos", *BOXES, *MASKS):
        return None
    if config.name in SETS:
        return SETS[config.name].classes
    if config.name in TEXT:
        return load_text(config).facts.outputs
    if config.name == "folder":
        return len(find_files(config.model_copy(update={"size": 1})).classes)
    if config.name == "shards":
        return number_of_classes(find_shards(config).train.labels, f"{config.title} (training)")
    return read_pixels(config)[2] or None
