"""A data set of the user's own, by where it is: "my_module.MyData"."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from attnlab._errors import InputError, check_options
from attnlab._imported import imported
from attnlab.data.config import DataConfig
from attnlab.data.memory import MOST_COLOURS, Pixels, number_of_outputs
from attnlab.data.pictures import eight_bits


def load_own(config: DataConfig) -> tuple[Pixels, Pixels, int]:
    """`MyData(train=True, **options)` and `MyData(train=False, **options)`, read into memory.

    Items are (image, target). An image is Pillow's, or a tensor of bytes C×H×W; a target is a whole
    number (a class), a row of whole numbers 0 and 1 (labels), or of floating-point numbers
    (values).
    """
    found: Any = imported("data", config.name, Dataset)
    check_options(f"Data {config.name!r}", found.__init__, {"train": True, **config.options})
    parts = [_read(found(train=train, **config.options), config) for train in (True, False)]
    train, test = parts
    return train, test, number_of_outputs(train, f"{config.name} (training)")


def _read(items: Any, config: DataConfig) -> Pixels:
    what = config.name
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


def _image(image: Any, number: int, config: DataConfig) -> Tensor:
    from torchvision.transforms.v2 import functional as F

    if isinstance(image, Image.Image):
        what = f"{config.name}: the image of item {number}"
        image = F.pil_to_tensor(eight_bits(image, what).convert("RGB"))
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
    if config.size is not None and tuple(image.shape[1:]) != (config.size, config.size):
        image = F.resize(image, [config.size, config.size], antialias=True)
    return image
