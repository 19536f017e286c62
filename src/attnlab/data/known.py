"""Data sets in other libraries' files: torchvision's, numpy archives of the same form, and those of
the Hugging Face hub or local ones that `datasets` can read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from attnlab._errors import InputError, OptionError
from attnlab._words import listed
from attnlab.data.config import DataConfig
from attnlab.data.memory import Pixels, as_pixels, number_of_outputs
from attnlab.data.pictures import eight_bits

CIFAR = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
"""Mean and standard deviation that the papers' public code uses, for CIFAR-100 and STL10 too."""
_KEYS = ("train_x", "train_y", "test_x", "test_y")


class Known(NamedTuple):
    """What is known of a data set without its files."""

    title: str
    """torchvision's class."""
    classes: int
    train: int
    test: int
    side: int
    md5: str
    """The MD5 sum of the published archive, which torchvision compares before it reads."""


SETS = {
    "cifar10": Known("CIFAR10", 10, 50_000, 10_000, 32, "c58f30108f718f92721af3b95e74349a"),
    "cifar100": Known("CIFAR100", 100, 50_000, 10_000, 32, "eb9058c3a382ffc7106e4002c42a8d85"),
    "stl10": Known("STL10", 10, 5_000, 8_000, 96, "91f7769df0f17e558f3565bffb0c7dfb"),
}


def torchvision_set(name: str, root: str, download: bool) -> tuple[Pixels, Pixels, int]:
    """One of `SETS` in the folder `root`: as torchvision unpacks it, which checks that it is
    whole, or as a numpy archive `NAME*.npz`. Nothing is fetched but by `download`."""
    from torchvision import datasets

    found_archive = archive_of(name, root)
    if found_archive is not None and not download:
        return *_parts_of(found_archive), SETS[name].classes
    title = SETS[name].title
    parts = []
    for part in ("train", "test"):
        which = {"split": part} if title == "STL10" else {"train": part == "train"}
        try:
            found = getattr(datasets, title)(root, download=download, **which)
        except RuntimeError as error:
            raise InputError(
                f"There is no whole {title} in {root!r} ({str(error).partition('.')[0]}), and no "
                f"{name}*.npz. Set data.root (--root) to the folder that holds it, or "
                f"data.download = true to have torchvision fetch it there."
            ) from None
        labels = np.asarray(found.labels if title == "STL10" else found.targets)
        # STL10 is stored with the channels first.
        images = found.data.transpose(0, 2, 3, 1) if title == "STL10" else found.data
        parts.append(as_pixels(images, labels, f"{title} ({part})"))
    return parts[0], parts[1], SETS[name].classes


def archive_of(name: str, root: str | None) -> Path | None:
    """The first archive `NAME*.npz` in a folder, if there is one."""
    return next(iter(sorted(Path(root or "data").glob(f"{name}*.npz"))), None)


def archive(path: Path) -> tuple[Pixels, Pixels, int]:
    """train_x, train_y, test_x and test_y of a numpy archive."""
    train, test = _parts_of(path)
    return train, test, number_of_outputs(train, f"{path.name} (train)")


def _parts_of(path: Path) -> tuple[Pixels, Pixels]:
    arrays = read_archive(path, _KEYS)
    train = as_pixels(arrays[0], arrays[1], f"{path.name} (train)")
    return train, as_pixels(arrays[2], arrays[3], f"{path.name} (test)")


def read_archive(path: Path, keys: tuple[str, ...]) -> list[np.ndarray]:
    """The arrays `keys` of a numpy archive; nothing is unpickled."""
    try:
        with np.load(path, allow_pickle=False) as found:
            missing = [key for key in keys if key not in found.files]
            if missing:
                raise InputError(
                    f"{str(path)!r} has no {', '.join(missing)}; it has {', '.join(found.files)}. "
                    f"Expected {', '.join(keys)}."
                )
            return [found[key] for key in keys]
    except InputError:
        raise
    except Exception as error:  # on arbitrary bytes the reader fails with any type of error
        raise InputError(f"{str(path)!r} is not a readable numpy archive: {error}") from error


_SAVED = ("dataset_dict.json", "state.json")
"""Files of a folder that `datasets` saved: of several splits, of one."""


def load_hub(config: DataConfig) -> tuple[Pixels, Pixels, int]:
    """Training and test split (or validation), decoded into memory, and the number of classes."""
    if config.root is None:
        raise OptionError("Data 'hf' needs the name or folder of a data set, root = 'cifar10'.")
    found = hub_splits(config, config.root)
    import datasets

    testing, notes = two_splits(found, config.root)
    features = found["train"].features
    image = _column(features, datasets.Image, config.root)
    label = _column(features, datasets.ClassLabel, config.root)
    train, test = (
        _pixels(split[image], split[label], config) for split in (found["train"], found[testing])
    )
    return train, replace(test, notes=notes), features[label].num_classes


def two_splits(
    found: Mapping[str, object], root: str, train: str = "train", test: str | None = None
) -> tuple[str, tuple[str, ...]]:
    """The split that is tested on, which is `test` or, unless told, test or validation; and which
    splits are not used."""
    testing = test or next((name for name in ("test", "validation") if name in found), None)
    if testing is None or not {train, testing} <= found.keys():
        raise InputError(
            f"Expected splits {train} and {test or 'test (or validation)'} in {root!r} but it has "
            f"{', '.join(found)}."
        )
    unused = [name for name in found if name not in (train, testing)]
    if not unused:
        return testing, ()
    return testing, (f"The split {listed(unused)} is not used: testing is on {testing}.",)


def hub_splits(config: DataConfig, root: str) -> Mapping[str, Any]:
    """Return what `datasets` finds at `root`, split by split: a folder that it saved, one whose
    files it can read, or the name of one that is on this machine or may be fetched."""
    try:
        import datasets
    except ImportError:
        raise OptionError(
            f"Data {config.name!r} of this kind needs the package datasets, which is not "
            f"installed: pip install datasets."
        ) from None
    try:
        with _offline(datasets, not config.download):
            saved = any(Path(root, name).is_file() for name in _SAVED)
            found = datasets.load_from_disk(root) if saved else datasets.load_dataset(root)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        if Path(root).exists():
            raise InputError(
                f"`datasets` cannot read {root!r} ({error}). Expected a folder that it saved, or "
                f"one of whole files that it knows, such as Parquet."
            ) from error
        raise InputError(
            f"There is no data set {root!r} on this machine ({error}). Set "
            f"data.download = true to have `datasets` fetch it."
        ) from error
    return {"train": found} if isinstance(found, datasets.Dataset) else found


@contextmanager
def _offline(datasets: ModuleType, wanted: bool) -> Iterator[None]:
    """No request leaves the machine. Both packages read the variable HF_HUB_OFFLINE only once."""
    from huggingface_hub import constants

    switches: list[Any] = [datasets.config, constants]
    before = [(switch, switch.HF_HUB_OFFLINE) for switch in switches]
    try:
        for switch, value in before:
            switch.HF_HUB_OFFLINE = value or wanted
        yield
    finally:
        for switch, value in before:
            switch.HF_HUB_OFFLINE = value


def _column(features: Mapping[str, object], kind: type, root: str) -> str:
    columns = [name for name, feature in features.items() if isinstance(feature, kind)]
    if len(columns) != 1:
        raise InputError(
            f"Expected {root!r} to have one column of type {kind.__name__} but it has "
            f"{', '.join(columns) or 'none'} among {', '.join(features)}."
        )
    return columns[0]


def _pixels(images: Sequence[Image.Image], labels: Sequence[int], config: DataConfig) -> Pixels:
    pictures: list[np.ndarray] = []
    for number, image in enumerate(images):
        picture = eight_bits(image, f"Image {number} of {config.root!r}").convert("RGB")
        if config.size is not None:
            picture = picture.resize((config.size, config.size))
        elif pictures and picture.size[::-1] != pictures[0].shape[:2]:
            raise InputError(
                f"{config.root!r} has images of different sizes (image {number} is "
                f"{picture.size[0]}×{picture.size[1]}). Set data.size."
            )
        pictures.append(np.asarray(picture))
    return as_pixels(np.stack(pictures), np.asarray(labels), str(config.root))
