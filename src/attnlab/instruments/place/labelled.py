"""Batches of images with their classes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from attnlab._errors import InputError
from attnlab.instruments.place.strategy import Asked


def labelled(asked: Asked, strategy: str) -> Iterator[tuple[Tensor, Tensor]]:
    """(images, classes) of every batch, where the network is."""
    parameter = next(
        (p for p in asked.network.parameters() if p.is_floating_point()), torch.ones(1)
    )
    for batch in asked.loader:
        images, classes = _pair(batch, strategy)
        yield images.to(parameter), classes.to(parameter.device, torch.long)


def _pair(batch: Any, strategy: str) -> tuple[Tensor, Tensor]:
    if not isinstance(batch, tuple | list) or len(batch) < 2 or not isinstance(batch[0], Tensor):
        raise InputError(
            f"Strategy {strategy!r} needs the labels of the images: expected batches (images, "
            f"classes) but got {type(batch).__name__}. Without labels choose 'stiffest', 'tns' or "
            f"'nsi-spread'."
        )
    images, classes = batch[0], batch[1]
    if (
        not isinstance(classes, Tensor)
        or classes.ndim != 1
        or classes.is_floating_point()
        or len(classes) != len(images)
    ):
        shape = tuple(classes.shape) if isinstance(classes, Tensor) else type(classes).__name__
        raise InputError(
            f"Strategy {strategy!r} needs one class per image as a whole number: expected "
            f"{len(images)} of them but got {shape}."
        )
    return images, classes


def check_classes(network: nn.Module, output: Any, classes: Tensor) -> None:
    """Refuse an output that has no value for some class."""
    if not isinstance(output, Tensor) or output.ndim != 2 or len(output) != len(classes):
        shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise InputError(
            f"Expected {type(network).__name__} to return a value per image and class but got "
            f"{shape}."
        )
    if int(classes.max()) >= output.shape[1] or int(classes.min()) < 0:
        raise InputError(
            f"The labels go from {int(classes.min())} to {int(classes.max())}, and "
            f"{type(network).__name__} has {output.shape[1]} classes: these are not its labels."
        )


def classes_note(seen: set[int], outputs: int) -> tuple[str, ...]:
    """What to look at where the labels may be others than those that the network learned."""
    if len(seen) == outputs:
        return ()
    return (
        f"the images have {len(seen)} classes and the network {outputs}: make sure that they are "
        f"numbered alike",
    )
