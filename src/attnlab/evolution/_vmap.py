"""`torch.func.vmap`: the mapped axis becomes part of the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attnlab.evolution import _attention_ops, _ops, _span_ops


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


def _spanned(
    info: Any, axes: tuple[Any, ...], features: Tensor, x: Tensor, *rest: Any
) -> tuple[Tensor, int]:
    """Weights belong to all of a batch: where they are mapped, one call for each."""
    count = info.batch_size
    if axes[2] is None and axes[3] is None:
        both = (_folded(features, axes[0], count), _folded(x, axes[1], count))
        return _span_ops.spanned_av(*both, *rest).unflatten(0, (count, -1)), 0
    given = list(zip((features, x, *rest[:2]), axes, strict=False))
    each = [
        _span_ops.spanned_av(*(_picked(t, axis, i) for t, axis in given), *rest[2:])
        for i in range(count)
    ]
    return torch.stack(each), 0


def _picked(tensor: Tensor | None, axis: int | None, index: int) -> Any:
    return tensor if tensor is None or axis is None else tensor.select(axis, index)


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

    each = [
        _attention_ops.attention(
            [_picked(t, axis, i) for t, axis in zip(parts, part_axes, strict=True)],
            _picked(bias, bias_axis, i),
            [_picked(t, axis, i) for t, axis in zip(relative, relative_axes, strict=True)],
            *settings,
        )
        for i in range(count)
    ]
    return tuple(map(torch.stack, zip(*each, strict=True))), (0, 0)


for _operator in (_ops.av, _ops.qk, _ops.sc):
    _operator.register_vmap(_primitive(_operator))
_attention_ops.attention.register_vmap(_attention)
_span_ops.spanned_av.register_vmap(_spanned)
