"""Batches of images with their classes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from attnlab._errors import InputError
from attnlab.instruments.place.strategy import Placing
from attnlab.residuals.inputs import read_batch
from attnlab.surgery.answer import check_labels


def labelled(asked: Placing, strategy: str) -> Iterator[tuple[Tensor, Tensor]]:
    """(images, classes) of every batch, where the network is."""
    for batch in asked.loader:
        for sample in read_batch(batch, asked.network):
            if not isinstance(sample.inputs, Tensor) or sample.labels is None:
                raise InputError(
                    f"Strategy {strategy!r} needs the class of every image, a whole number: "
                    f"expected batches (images, classes) but got {_described(batch)}. Without "
                    f"classes choose 'stiffest', 'tns' or 'nsi-spread'."
                )
            yield sample.inputs, sample.labels.to(sample.inputs.device)


def _described(batch: Any) -> str:
    if isinstance(batch, tuple | list) and len(batch) > 1 and isinstance(batch[1], Tensor):
        kind = str(batch[1].dtype).removeprefix("torch.")
        return f"classes of shape {tuple(batch[1].shape)} in {kind}"
    return type(batch).__name__


def check_classes(network: nn.Module, output: Any, classes: Tensor) -> None:
    """Refuse an output that has no value for some class."""
    if not isinstance(output, Tensor) or output.ndim != 2 or len(output) != len(classes):
        shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise InputError(
            f"Expected {type(network).__name__} to return a value per image and class but got "
            f"{shape}."
        )
    check_labels(output, classes)


def classes_note(seen: set[int], outputs: int) -> tuple[str, ...]:
    """What to look at if the labels may be others than those that the network learned."""
    if len(seen) == outputs:
        return ()
    return (
        f"the images have {len(seen)} classes and the network {outputs}: make sure that they are "
        f"numbered alike",
    )
