"""What torch asks of the operators besides their derivatives: FLOP formulas and `torch.func.vmap`.

The formulas are for `torch.utils.flop_counter` and count two per multiply-add. The softmax is not
counted, as torch does not count it for its own attention. The backward pass of attention counts the
scores that it makes again, as torch's formula for its own does.

Under `vmap` the mapped axis becomes part of the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Protocol

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from attnlab.evolution import _attention_ops, _ops
from attnlab.evolution.window import Window

Shape = Sequence[int]
"""The counter hands formulas the shapes of tensors in the place of these."""


@register_flop_formula(_ops.av_operator._opoverload._overloadpacket)
def _av_flops(maps: Shape, *_rest: object, out_shape: Shape, **_: object) -> int:
    return 2 * maps[2] * prod(out_shape)


@register_flop_formula(_ops.qk_operator._opoverload._overloadpacket)
def _qk_flops(q: Shape, _x: Shape, _groups: int, window: list[int], **_: object) -> int:
    return 2 * Window.from_flat(window).taps * prod(q)


@register_flop_formula(_ops.sc_operator._opoverload._overloadpacket)
def _sc_flops(maps: Shape, y: Shape, *_rest: object, **_: object) -> int:
    return 2 * maps[2] * prod(y)


@register_flop_formula(_ops.spanned_av_operator._opoverload._overloadpacket)
def _spanned_flops(
    features: Shape,
    x: Shape,
    weight: Shape,
    _bias: Shape | None,
    _groups: int,
    window: list[int],
    **_: object,
) -> int:
    span, aggregation = _span_products(features, x, weight, window)
    return span + aggregation


@register_flop_formula(_ops.spanned_av_backward._opoverload._overloadpacket)
def _spanned_backward_flops(
    _grad: Shape,
    features: Shape,
    x: Shape,
    weight: Shape,
    _bias: Shape | None,
    _groups: int,
    window: list[int],
    **_: object,
) -> int:
    """The maps again, gradients of features and weight; gradients of maps and of x."""
    span, aggregation = _span_products(features, x, weight, window)
    return 3 * span + 2 * aggregation


def _span_products(features: Shape, x: Shape, weight: Shape, window: list[int]) -> tuple[int, int]:
    pixels = 2 * features[0] * prod(features[2:])
    return pixels * prod(weight), pixels * Window.from_flat(window).taps * x[1]


@register_flop_formula(_attention_ops.attention_operator._opoverload._overloadpacket)
def _attention_flops(
    parts: Sequence[Shape],
    _bias: Shape | None,
    _relative: Sequence[Shape],
    _heads: int,
    _scale: float,
    _mask: bool,
    window: list[int],
    **_: object,
) -> int:
    scores, values = _attention_products(parts, window)
    return scores + values


@register_flop_formula(_attention_ops.attention_backward._opoverload._overloadpacket)
def _attention_backward_flops(
    _grad: Shape,
    _stats: Shape,
    parts: Sequence[Shape],
    _bias: Shape | None,
    _relative: Sequence[Shape],
    _heads: int,
    _scale: float,
    _mask: bool,
    window: list[int],
    **_: object,
) -> int:
    """Scores again, gradients of query and key; gradients of weights and of values."""
    scores, values = _attention_products(parts, window)
    return 3 * scores + 2 * values


def _attention_products(parts: Sequence[Shape], window: list[int]) -> tuple[int, int]:
    """FLOPs of scores and of values."""
    query, values = parts[0], parts[-1][1]
    width = query[1]
    if len(parts) == 1:
        width = values = width // 3
    pixels = 2 * Window.from_flat(window).taps * query[0] * prod(query[2:])
    return pixels * width, pixels * values


Axes = int | None
"""The axis over which an operand is mapped, None if it is not."""


class _Mapped(Protocol):
    batch_size: int


def _folded(tensor: Tensor, axis: Axes, count: int) -> Tensor:
    """(B, ...) mapped over `axis`, or not mapped, as (count·B, ...)."""
    mapped = tensor.expand(count, *tensor.shape) if axis is None else tensor.movedim(axis, 0)
    return mapped.flatten(0, 1)


def _picked(tensor: Tensor, axis: Axes, index: int) -> Tensor:
    return tensor if axis is None else tensor.select(axis, index)


def _primitive_vmap(operator: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, int]]:
    def rule(
        info: _Mapped, axes: Sequence[Axes], first: Tensor, second: Tensor, *rest: object
    ) -> tuple[Tensor, int]:
        count = info.batch_size
        out = operator(_folded(first, axes[0], count), _folded(second, axes[1], count), *rest)
        return out.unflatten(0, (count, -1)), 0

    return rule


def _spanned_vmap(
    info: _Mapped,
    axes: Sequence[Axes],
    features: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    groups: int,
    window: list[int],
) -> tuple[Tensor, int]:
    """Weights belong to all of a batch: where they are mapped, one call for each."""
    count, operator = info.batch_size, _ops.spanned_av_operator
    if axes[2] is None and axes[3] is None:
        both = (_folded(features, axes[0], count), _folded(x, axes[1], count))
        return operator(*both, weight, bias, groups, window).unflatten(0, (count, -1)), 0
    each = [
        operator(
            _picked(features, axes[0], i),
            _picked(x, axes[1], i),
            _picked(weight, axes[2], i),
            None if bias is None else _picked(bias, axes[3], i),
            groups,
            window,
        )
        for i in range(count)
    ]
    return torch.stack(each), 0


def _attention_vmap(
    info: _Mapped,
    axes: tuple[Sequence[Axes], Axes, Sequence[Axes]],
    parts: list[Tensor],
    bias: Tensor | None,
    relative: list[Tensor],
    *settings: object,
) -> tuple[tuple[Tensor, ...], tuple[int, int]]:
    """Position terms belong to all of a batch: where they are mapped, one call for each."""
    count, (part_axes, bias_axis, relative_axes, *_) = info.batch_size, axes
    operator: Callable[..., tuple[Tensor, Tensor]] = _attention_ops.attention_operator
    if bias_axis is None and all(axis is None for axis in relative_axes):
        folded = [_folded(t, axis, count) for t, axis in zip(parts, part_axes, strict=True)]
        found = operator(folded, bias, relative, *settings)
        return tuple(t.unflatten(0, (count, -1)) for t in found), (0, 0)

    each = [
        operator(
            [_picked(t, axis, i) for t, axis in zip(parts, part_axes, strict=True)],
            None if bias is None else _picked(bias, bias_axis, i),
            [_picked(t, axis, i) for t, axis in zip(relative, relative_axes, strict=True)],
            *settings,
        )
        for i in range(count)
    ]
    return tuple(map(torch.stack, zip(*each, strict=True))), (0, 0)


for _operator in (_ops.av_operator, _ops.qk_operator, _ops.sc_operator):
    _operator.register_vmap(_primitive_vmap(_operator))
_attention_ops.attention_operator.register_vmap(_attention_vmap)
_ops.spanned_av_operator.register_vmap(_spanned_vmap)
