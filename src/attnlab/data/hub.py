"""Data sets of the Hugging Face hub, or local ones that `datasets` can read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from attnlab._errors import InputError, OptionError
from attnlab.data.config import DataConfig
from attnlab.data.decode import eight_bits
from attnlab.data.memory import Pixels, as_pixels


def load_hub(config: DataConfig) -> tuple[Pixels, Pixels, int]:
    """Training and test split (or validation), decoded into memory, and the number of classes."""
    try:
        import datasets  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise OptionError(
            "Data 'hf' needs the package datasets, which is not installed: pip install datasets."
        ) from None
    if config.root is None:
        raise OptionError("Data 'hf' needs the name or folder of a data set, root = 'cifar10'.")
    try:
        with _offline(datasets, not config.download):
            if Path(config.root, "dataset_dict.json").is_file():
                found = datasets.load_from_disk(config.root)
            else:
                found = datasets.load_dataset(config.root)
    except (FileNotFoundError, ConnectionError, ValueError) as error:
        raise InputError(
            f"There is no data set {config.root!r} on this machine ({error}). Set "
            f"data.download = true to have `datasets` fetch it."
        ) from error
    testing = next((name for name in ("test", "validation") if name in found), None)
    if "train" not in found or testing is None:
        raise InputError(
            f"Expected splits train and test (or validation) in {config.root!r} but it has "
            f"{', '.join(found)}."
        )
    features = found["train"].features
    image = _column(features, datasets.Image, config.root)
    label = _column(features, datasets.ClassLabel, config.root)
    parts = [_pixels(found[name], image, label, config) for name in ("train", testing)]
    return parts[0], parts[1], features[label].num_classes


@contextmanager
def _offline(datasets: Any, wanted: bool) -> Iterator[None]:
    """No request leaves the machine. Both packages read the variable HF_HUB_OFFLINE only once."""
    from huggingface_hub import constants

    switches: list[Any] = [datasets.config, constants]
    before = [switch.HF_HUB_OFFLINE for switch in switches]
    try:
        for switch in switches:
            switch.HF_HUB_OFFLINE = switch.HF_HUB_OFFLINE or wanted
        yield
    finally:
        for switch, value in zip(switches, before, strict=True):
            switch.HF_HUB_OFFLINE = value


def _column(features: Any, kind: type, root: str) -> str:
    columns = [name for name, feature in features.items() if isinstance(feature, kind)]
    if len(columns) != 1:
        raise InputError(
            f"Expected {root!r} to have one column of type {kind.__name__} but it has "
            f"{', '.join(columns) or 'none'} among {', '.join(features)}."
        )
    return columns[0]


def _pixels(split: Any, image: str, label: str, config: DataConfig) -> Pixels:
    pictures: list[np.ndarray] = []
    for number, picture in enumerate(split[image]):
        picture = eight_bits(picture, f"Image {number} of {config.root!r}").convert("RGB")
        if config.size is not None:
            picture = picture.resize((config.size, config.size))
        elif pictures and picture.size[::-1] != pictures[0].shape[:2]:
            raise InputError(
                f"{config.root!r} has images of different sizes (image {number} is "
                f"{picture.size[0]}×{picture.size[1]}). Set data.size."
            )
        pictures.append(np.asarray(picture))
    return as_pixels(np.stack(pictures), np.asarray(split[label]), str(config.root))
