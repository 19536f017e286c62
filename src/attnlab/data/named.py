"""The images that a command or a call names: a folder, an archive, or a data set."""

from __future__ import annotations

from pathlib import Path

from attnlab._errors import InputError
from attnlab._imported import is_path
from attnlab.data.config import BOXES, NAMES, DataConfig
from attnlab.data.data import Data
from attnlab.data.folder import find_files
from attnlab.data.known import SETS
from attnlab.data.load import load_data, read_pixels
from attnlab.data.undivided import UndividedData
from attnlab.networks.preprocessing import Preprocessing

_PHOTOGRAPHS = ("folder", "photos")
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
            f"{', '.join(NAMES)} but got {name!r}, which is none of them."
        )
    return DataConfig(name=name, root=None if root is None else str(root))


def needs_preprocessing(data: str | Path, root: str | Path | None = None) -> bool:
    """Whether the images have no size of their own, so that the network must say one."""
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
    if config.name == "folder" and preprocessing is not None:
        config = config.model_copy(update={"size": preprocessing.size[1]})
    return load_data(config, preprocessing)


def outputs_of(data: str | Path, root: str | Path | None = None) -> int | None:
    """How many outputs a network for these data needs; None where nothing is known of them, or
    where what is known need not be what a network learned."""
    config = data_config(data, root)
    if config is None or config.name in ("fake", "photos", *BOXES):
        return None
    if config.name in SETS:
        return SETS[config.name].classes
    if config.name == "folder":
        return len(find_files(config.model_copy(update={"size": 1})).classes)
    return read_pixels(config)[2] or None
