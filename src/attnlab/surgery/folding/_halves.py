"""Images in two halves: one chooses gates and makes constants, the other measures the result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from attnlab._errors import InputError
from attnlab.residuals.inputs import Inputs, check_finite, read_batch

FEWEST = 32
"""Images, of both halves together."""
_TOGETHER = 64
"""Images that run at once, where batches are small."""


@dataclass(frozen=True)
class Part:
    """Some images, and their classes where they are known."""

    inputs: Inputs
    classes: Tensor | None
    images: int


@dataclass(frozen=True)
class Halves:
    """Every second image is held out: of a folder that is sorted by class, both see all."""

    choosing: tuple[Part, ...]
    held_out: tuple[Part, ...]

    @property
    def labelled(self) -> bool:
        """Whether the class of every image is known."""
        return all(part.classes is not None for part in (*self.choosing, *self.held_out))


def halves(model: nn.Module, batches: Iterable[Any]) -> Halves:
    """The images of `batches`, kept in memory, in two halves."""
    choosing: list[Part] = []
    held_out: list[Part] = []
    seen = 0
    for number, batch in enumerate(batches):
        for sample in read_batch(batch, model):
            inputs, images = sample.inputs, sample.number
            check_finite(inputs, number)
            classes = None if sample.labels is None else sample.labels.cpu()
            for part, first in ((choosing, seen % 2), (held_out, 1 - seen % 2)):
                chosen = slice(first, None, 2)
                kept = len(range(*chosen.indices(images)))
                if kept:
                    labels = None if classes is None else classes[chosen]
                    part.append(Part(_every_second(inputs, images, chosen), labels, kept))
            seen += images
    if not seen:
        raise InputError("The images gave no batch. Expected an iterable of input batches.")
    if seen < FEWEST:
        raise InputError(
            f"There are {seen} images. Expected at least {FEWEST} for a budget: half of them "
            f"choose, and half are held out to measure what was chosen. Some hundreds are better."
        )
    return Halves(_grouped(choosing), _grouped(held_out))


def in_two(parts: Sequence[Part]) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
    """Every second image of each part, and the others."""
    return tuple(
        tuple(
            Part(
                _every_second(part.inputs, part.images, chosen),
                None if part.classes is None else part.classes[chosen],
                len(range(*chosen.indices(part.images))),
            )
            for part in parts
            if part.images > 1
        )
        for chosen in (slice(0, None, 2), slice(1, None, 2))
    )  # type: ignore[return-value]


def _grouped(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Neighbours of one size together: half of a small batch is a small one."""
    grouped: list[Part] = []
    for part in parts:
        last = grouped[-1] if grouped else None
        if last is not None and _alike(last, part) and last.images + part.images <= _TOGETHER:
            grouped[-1] = _joined(last, part)
        else:
            grouped.append(part)
    return tuple(grouped)


def _alike(first: Part, second: Part) -> bool:
    tensors = (first.inputs, second.inputs)
    return (
        all(isinstance(tensor, Tensor) for tensor in tensors)
        and len({tuple(tensor.shape[1:]) for tensor in tensors if isinstance(tensor, Tensor)}) == 1
        and (first.classes is None) == (second.classes is None)
    )


def _joined(first: Part, second: Part) -> Part:
    assert isinstance(first.inputs, Tensor)
    assert isinstance(second.inputs, Tensor)
    classes = None
    if first.classes is not None and second.classes is not None:
        classes = torch.cat((first.classes, second.classes))
    images = torch.cat((first.inputs, second.inputs))
    return Part(images, classes, len(images))


def _every_second(inputs: Inputs, images: int, chosen: slice) -> Inputs:
    if isinstance(inputs, Tensor):
        return inputs[chosen]
    if isinstance(inputs, tuple):
        return (inputs[0][chosen],)
    return {
        name: v[chosen] if isinstance(v, Tensor) and v.ndim and len(v) == images else v
        for name, v in inputs.items()
    }
