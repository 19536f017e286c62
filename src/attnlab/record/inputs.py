"""What of a batch a network takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_map

from attnlab._errors import InputError

Inputs = Tensor | dict[str, Any]


def inputs_of(batch: Any, model: nn.Module) -> Inputs:
    """The tensor or dictionary of inputs that `batch` is or starts with, on the device and in the
    precision of `model`."""
    first = batch[0] if isinstance(batch, tuple | list) and batch else batch
    if not isinstance(first, Tensor | Mapping):
        raise InputError(
            f"Expected batches that are a tensor, start with one, or are a dictionary of inputs "
            f"but got {type(batch).__name__}."
        )
    parameter = next((p for p in model.parameters() if p.is_floating_point()), None)

    def moved(leaf: Any) -> Any:
        if parameter is None or not isinstance(leaf, Tensor):
            return leaf
        return leaf.to(parameter if leaf.is_floating_point() else parameter.device)

    if isinstance(first, Tensor):
        return moved(first)
    return {name: tree_map(moved, value) for name, value in first.items()}


def head(inputs: Inputs, number: int) -> Inputs:
    """The first `number` of a batch."""
    if isinstance(inputs, Tensor):
        return inputs[:number]
    return {name: v[:number] if isinstance(v, Tensor) else v for name, v in inputs.items()}
