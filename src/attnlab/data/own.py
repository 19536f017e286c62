"""A data set of the user's own, by where it is: "my_module.MyData"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from attnlab._errors import InputError, check_options
from attnlab._imported import imported
from attnlab.data.config import DataConfig
from attnlab.data.memory import MOST_COLOURS, Pixels, number_of_outputs
from attnlab.data.pictures import eight_bits, picture_bytes, resized


@runtime_checkable
class _Items(Protocol):
    """What a data set must have to be read whole; torch asks for the second only."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> object: ...


def load_own(config: DataConfig) -> tuple[Pixels, Pixels, int]:
    """`MyData(train=True, **options)` and `MyData(train=False, **options)`, read into memory.

    Items are (image, target). An image is Pillow's, or a tensor of bytes C×H×W; a target is a whole
    number (a class), a row of whole numbers 0 and 1 (labels), or of floating-point numbers
    (values).
    """
    made: Callable[..., object] = imported("data", config.name, Dataset)
    check_options(f"Data {config.name!r}", made, {"train": True, **config.options})
    train, test = (_read(made(train=part, **config.options), config) for part in (True, False))
    return train, test, number_of_outputs(train, f"{config.name} (training)")


def _read(items: object, config: DataConfig) -> Pixels:
    what = config.name
    if not isinstance(items, _Items):
        raise InputError(f"{what}: expected a data set with a length but it has no __len__.")
    images: list[Tensor] = []
    targets: list[Tensor] = []
    for number in range(len(items)):
        item = items[number]
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise InputError(
                f"{what}: expected items (image, target) but item {number} is "
                f"{type(item).__name__}."
            )
        images.append(_image(item[0], number, config))
        targets.append(torch.as_tensor(np.asarray(item[1])))
        if images[-1].shape != images[0].shape or targets[-1].shape != targets[0].shape:
            raise InputError(
                f"{what}: expected images and targets of one shape, {tuple(images[0].shape)} and "
                f"{tuple(targets[0].shape)} as the first, but item {number} has "
                f"{tuple(images[-1].shape)} and {tuple(targets[-1].shape)}. Set data.size to "
                f"have images resized."
            )
    if not images:
        raise InputError(f"{what}: expected at least one item but it has none.")
    known = torch.stack(targets)
    if known.is_floating_point():
        known = known.float().reshape(len(known), -1)
    elif known.ndim > 2:
        raise InputError(f"{what}: a target has {known.ndim - 1} axes; expected at most one.")
    else:
        known = known.long()
    return Pixels(torch.stack(images), known)


def _image(image: object, number: int, config: DataConfig) -> Tensor:
    if isinstance(image, Image.Image):
        what = f"{config.name}: the image of item {number}"
        image = picture_bytes(eight_bits(image, what).convert("RGB"))
    if not isinstance(image, Tensor) or image.dtype != torch.uint8 or image.ndim != 3:
        got = f"{image.dtype} {tuple(image.shape)}" if isinstance(image, Tensor) else type(image)
        raise InputError(
            f"{config.name}: expected an image of Pillow or a tensor of bytes C×H×W but item "
            f"{number} has {got}."
        )
    if image.shape[2] <= MOST_COLOURS < image.shape[0]:
        raise InputError(
            f"{config.name}: expected an image C×H×W but item {number} has the shape "
            f"{tuple(image.shape)}, which has its channels last. Return image.permute(2, 0, 1)."
        )
    return image if config.size is None else resized(image, (config.size, config.size))
