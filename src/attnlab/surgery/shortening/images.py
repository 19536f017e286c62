"""The images that steps are ranked and judged on, with labels where there are some."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from attnlab._checked import check_batches
from attnlab._errors import InputError
from attnlab.residuals.inputs import Inputs, inputs_of, number_of_inputs


@dataclass(frozen=True)
class Sample:
    """One batch, as the network takes it."""

    inputs: Inputs
    labels: Tensor | None
    """One class per input, or None."""

    @property
    def number(self) -> int:
        given = self.inputs
        if isinstance(given, dict):
            return number_of_inputs((), given)
        return number_of_inputs(given if isinstance(given, tuple) else (given,), {})


def samples_of(images: Iterable[Any], network: nn.Module, name: str = "images") -> list[Sample]:
    """The batches of `images`; labelled where each is a pair of inputs and whole numbers."""
    if isinstance(images, Tensor):
        raise InputError(
            f"Expected {name} to be batches, such as a DataLoader or a list of tensors, but got "
            f"one tensor of shape {tuple(images.shape)}. Pass {name}=[tensor]."
        )
    check_batches(images, name)
    found = []
    for batch in images:
        inputs = list(inputs_of(batch, network))
        labels = _labels(batch) if len(inputs) == 1 else None
        found += [Sample(each, labels) for each in inputs]
    if not found:
        raise InputError(f"Expected {name} with at least one batch but got none.")
    first = found[0]
    if any((sample.labels is None) != (first.labels is None) for sample in found):
        raise InputError(f"Expected {name} that all have labels, or none, but only some have.")
    for sample in found:
        if sample.labels is not None and len(sample.labels) != sample.number:
            raise InputError(
                f"Expected one label per image but got {len(sample.labels)} labels for "
                f"{sample.number} images."
            )
    return found


def _labels(batch: Any) -> Tensor | None:
    if not isinstance(batch, tuple | list) or len(batch) < 2 or not isinstance(batch[1], Tensor):
        return None
    labels = batch[1]
    whole = not labels.is_floating_point() and not labels.is_complex()
    return labels.long() if whole and labels.ndim == 1 else None
