"""What of a batch a network takes, and the classes that come with it: the one place that knows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from attnlab._checked import check_batches
from attnlab._errors import InputError

Loaded = Tensor | tuple[Any, ...] | list[Any] | Mapping[str, Any]
"""One batch of a loader: a tensor; a tuple or list that starts with one, with a list of images or
with keyword inputs; or keyword inputs alone."""

Batches = Iterable[Loaded]
"""A DataLoader, a list of batches, or anything else that yields them."""

Inputs = Tensor | dict[str, Any] | tuple[list[Tensor]]
"""A tensor, keyword inputs, or a list of images as detectors take it."""


@dataclass(frozen=True)
class Sample:
    """One batch as a network takes it, with the classes of its inputs if they are known."""

    inputs: Inputs
    labels: Tensor | None
    """One class per input, or None."""
    following: Tensor | None = None
    """One whole number for each place of each input, or None: of a text the token that comes next.
    Whether the network speaks of these is for its reader to see."""

    @property
    def number(self) -> int:
        """How many inputs there are."""
        given = self.inputs
        if isinstance(given, dict):
            return number_of_inputs((), given)
        return number_of_inputs(given if isinstance(given, tuple) else (given,), {})


def samples_of(images: Batches, network: nn.Module, name: str = "images") -> list[Sample]:
    """Read all batches of `images` into memory; either all have labels or none has.

    Args:
        images: the batches.
        network: that takes them.
        name: what messages call the batches.
    """
    if isinstance(images, Tensor):
        raise InputError(
            f"Expected {name} to be batches, such as a DataLoader or a list of tensors, but got "
            f"one tensor of shape {tuple(images.shape)}. Pass {name}=[tensor]."
        )
    check_batches(images, name)
    found = [sample for batch in images for sample in read_batch(batch, network)]
    if not found:
        raise InputError(f"Expected {name} with at least one batch but got none.")
    if len({(sample.labels is None, sample.following is None) for sample in found}) > 1:
        raise InputError(f"Expected {name} that all have labels, or none, but only some have.")
    return found


def read_batch(batch: Loaded, network: nn.Module) -> Iterator[Sample]:
    """The samples of one batch: one, or one for each image of a list with different sizes, which
    then has no labels."""
    inputs = list(inputs_of(batch, network))
    for each in inputs:
        labels = _whole_numbers(batch) if len(inputs) == 1 else None
        sample = Sample(each, *_as_classes(labels))
        if sample.labels is not None and len(sample.labels) != sample.number:
            raise InputError(
                f"Expected one label per image but got {len(sample.labels)} labels for "
                f"{sample.number} images."
            )
        yield sample


def _whole_numbers(batch: Loaded) -> Tensor | None:
    """The second part of a batch, if it is whole numbers. Truth values are not classes: they may be
    a mask."""
    if not isinstance(batch, tuple | list) or len(batch) < 2 or not isinstance(batch[1], Tensor):
        return None
    labels = batch[1]
    whole = not (labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool)
    return labels.long() if whole else None


def _as_classes(numbers: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """Classes, one per input, and what follows at each place: one of them or neither."""
    if numbers is None or numbers.ndim not in (1, 2):
        return None, None
    return (numbers, None) if numbers.ndim == 1 else (None, numbers)


def inputs_of(batch: Loaded, model: nn.Module) -> Iterator[Inputs]:
    """The inputs that `batch` is or starts with, on the device and in the precision of `model`.

    Images of a list that have different sizes come one by one: side by side, a network pads them to
    the largest, and what is measured of one would depend on the others.
    """
    first = batch[0] if isinstance(batch, tuple | list) and batch else batch
    images = isinstance(first, list) and first and all(isinstance(i, Tensor) for i in first)
    if not images and not isinstance(first, Tensor | Mapping):
        raise InputError(
            f"Expected batches that are a tensor, start with one or with a list of images, or are "
            f"a dictionary of inputs but got {type(batch).__name__}."
        )
    parameter = next((p for p in model.parameters() if p.is_floating_point()), None)

    def moved(leaf: Any) -> Any:
        if parameter is None or not isinstance(leaf, Tensor):
            return leaf
        return leaf.to(parameter if leaf.is_floating_point() else parameter.device)

    if isinstance(first, Tensor):
        yield moved(first)
    elif isinstance(first, Mapping):
        yield {name: tree_map(moved, value) for name, value in first.items()}
    elif len({image.shape for image in first}) == 1:
        yield ([moved(image) for image in first],)
    else:
        for image in first:
            yield ([moved(image)],)


def check_finite(inputs: Inputs, number: int) -> None:
    """Refuse those of batch `number` if they have values that are not finite."""
    leaves = [x for x in tree_leaves(inputs) if isinstance(x, Tensor) and x.is_floating_point()]
    if not all(bool(leaf.isfinite().all()) for leaf in leaves):
        raise InputError(
            f"Batch {number} of the images has values that are not finite. Expected images as the "
            f"network takes them."
        )


def head(inputs: Inputs, number: int) -> Inputs:
    """The first `number` of a batch."""
    if isinstance(inputs, Tensor):
        return inputs[:number]
    if isinstance(inputs, tuple):
        return (inputs[0][:number],)
    return {name: v[:number] if isinstance(v, Tensor) else v for name, v in inputs.items()}


def number_of_inputs(arguments: tuple[object, ...], keywords: Mapping[str, object]) -> int:
    """Along the first axis of the first tensor of a call, also one in a dictionary that it is given
    (NaFlex), or in its first list of images; 0 where there is none."""
    for value in (*arguments, *keywords.values()):
        if isinstance(value, Tensor):
            return value.shape[0] if value.ndim else 0
        if isinstance(value, list) and value and isinstance(value[0], Tensor):
            return len(value)
        if isinstance(value, Mapping) and (inside := number_of_inputs((), value)):
            return inside
    return 0
