"""Well-known data sets in torchvision's files, and numpy archives of the same form."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from attnlab._errors import InputError
from attnlab.data.memory import Pixels, as_pixels, number_of_outputs

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
    """Of the published archive, which torchvision compares before it reads."""


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
        train, test, _ = archive(found_archive)
        return train, test, SETS[name].classes
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
    arrays = read_archive(path, _KEYS)
    train = as_pixels(arrays[0], arrays[1], f"{path.name} (train)")
    test = as_pixels(arrays[2], arrays[3], f"{path.name} (test)")
    return train, test, number_of_outputs(train, f"{path.name} (train)")


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
