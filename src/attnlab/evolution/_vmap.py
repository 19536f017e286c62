"""`torch.func.vmap`: the mapped axis becomes part of the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attnlab.evolution import _attention_ops, _ops


def _folded(tensor: Tensor, axis: int | None, count: int) -> Tensor:
    """(B, ...) mapped over `axis`, or not mapped, as (count·B, ...)."""
    mapped = tensor.expand(count, *tensor.shape) if axis is None else tensor.movedim(axis, 0)
    return mapped.flatten(0, 1)


def _primitive(operator: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, int]]:
    def rule(info: Any, axes: tuple[Any, ...], *arguments: Any) -> tuple[Tensor, int]:
        first, second, *rest = arguments
        count = info.batch_size
        out = operator(_folded(first, axes[0], count), _folded(second, axes[1], count), *rest)
        return out.unflatten(0, (count, -1)), 0

    return rule


def _attention(
    info: Any,
    axes: tuple[Any, ...],
    parts: list[Tensor],
    bias: Tensor | None,
    relative: list[Tensor],
    *settings: Any,
) -> tuple[Any, Any]:
    """Position terms belong to all of a batch: where they are mapped, one call for each."""
    count, (part_axes, bias_axis, relative_axes, *_) = info.batch_size, axes
    if bias_axis is None and all(axis is None for axis in relative_axes):
        folded = [_folded(t, axis, count) for t, axis in zip(parts, part_axes, strict=True)]
        found = _attention_ops.attention(folded, bias, relative, *settings)
        return tuple(t.unflatten(0, (count, -1)) for t in found), (0, 0)

    def pick(tensor: Tensor | None, axis: int | None, index: int) -> Any:
        return tensor if tensor is None or axis is None else tensor.select(axis, index)

    each = [
        _attention_ops.attention(
            [pick(t, axis, i) for t, axis in zip(parts, part_axes, strict=True)],
            pick(bias, bias_axis, i),
            [pick(t, axis, i) for t, axis in zip(relative, relative_axes, strict=True)],
            *settings,
        )
        for i in range(count)
    ]
    return tuple(map(torch.stack, zip(*each, strict=True))), (0, 0)


for _operator in (_ops.av, _ops.qk, _ops.sc):
    _operator.register_vmap(_primitive(_operator))
_attention_ops.attention.register_vmap(_attention)
