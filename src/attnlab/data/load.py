"""From settings to data. Nothing is fetched unless `download` says so."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from attnlab._checksums import file_checksum
from attnlab._errors import InputError, OptionError
from attnlab._imported import is_path
from attnlab.data import known, made
from attnlab.data.box_load import boxes_checksum, load_boxes
from attnlab.data.config import BOXES, DataConfig
from attnlab.data.data import Data
from attnlab.data.digits import digit_angles, digit_pairs, digits
from attnlab.data.folder import IMAGENET, find_files, load_folder
from attnlab.data.hub import load_hub
from attnlab.data.memory import (
    MemoryData,
    Pixels,
    Statistics,
    channel_statistics,
    check_pixels,
    pixel_checksum,
    subset,
)
from attnlab.data.own import load_own
from attnlab.data.photos import photos, photos_checksum
from attnlab.data.transformed import with_transform

_EMBEDDED = {"digits": digits, "digit-pairs": digit_pairs, "digit-angles": digit_angles}


def load_data(config: DataConfig) -> Data:
    """The images of `config`; every problem that can be seen before training is an error here."""
    if config.name in BOXES:
        return load_boxes(config)
    if config.name == "folder":
        data = load_folder(config, data_checksum(config))
        return with_transform(data, config.augmentation)
    if config.augmentation.crop == "resized":
        raise OptionError(
            "crop = 'resized' cuts from the original photographs: it is for data 'folder' only. "
            "Use crop = 'padded' or 'none'."
        )
    train, test, outputs = read_pixels(config)
    check_pixels(train, outputs, f"{config.name} (training)")
    train = subset(train, config.train_subset, f"{config.name} (training)")
    test = subset(test, config.test_subset, f"{config.name} (test)")
    if config.size is not None and config.name != "photos":
        train, test = _resized(train, config.size), _resized(test, config.size)
    data = MemoryData(
        config.name,
        train,
        test,
        outputs,
        data_checksum(config),
        config.augmentation,
        _statistics(config, train),
        config.stl_crop if config.name == "stl10" and config.size is None else None,
    )
    return with_transform(data, config.augmentation)


def read_pixels(config: DataConfig) -> tuple[Pixels, Pixels, int]:
    """Training and test images of a source that is held in memory, whole, and the number of
    classes, labels or values."""
    if config.name in known.SETS:
        return known.torchvision_set(config.name, config.root or "data", config.download)
    if config.name == "npz":
        return known.archive(_file(config))
    if config.name == "hf":
        return load_hub(config)
    if config.name == "fake":
        return made.fake(config.classes, config.train_subset or 1024, config.test_subset or 256)
    if config.name == "photos":
        return photos(config)
    if is_path(config.name):
        return load_own(config)
    return _EMBEDDED[config.name]()


def data_checksum(config: DataConfig) -> str:
    """What tells these images from others, the same on every machine and known before training.

    Of files it is their content, looked up by path, size and time where it was computed before;
    of torchvision's data sets, which torchvision itself checks, their published checksum, so that
    they need not be there; of all others the pixels and targets.
    """
    if config.name in known.SETS:
        return f"md5:{known.SETS[config.name].md5}"
    if config.name in BOXES:
        return boxes_checksum(config)
    if config.name == "npz":
        return file_checksum(_file(config))
    if config.name == "folder":
        return find_files(config).checksum()
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


def _file(config: DataConfig) -> Path:
    if config.root is None:
        raise OptionError("Data 'npz' needs the path of a numpy archive, root = 'images.npz'.")
    path = Path(config.root)
    if not path.is_file():
        raise InputError(f"There is no file {str(path)!r}. Expected a numpy archive (.npz).")
    return path


def _resized(pixels: Pixels, size: int) -> Pixels:
    import torch
    from torchvision.transforms.v2.functional import resize

    if tuple(pixels.images.shape[2:]) == (size, size):
        return pixels
    parts = [resize(part, [size, size], antialias=True) for part in pixels.images.split(1024)]
    return Pixels(torch.cat(parts), pixels.targets)
