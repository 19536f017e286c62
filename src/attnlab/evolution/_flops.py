"""FLOP formulas of the operators for `torch.utils.flop_counter`: two per multiply-add.

The softmax is not counted, as torch does not count it for its own attention. The backward pass of
attention counts the scores that it makes again, as torch's formula for its own does.
"""

from __future__ import annotations

from math import prod
from typing import Any

from torch.utils.flop_counter import register_flop_formula

from attnlab.evolution import _attention_ops, _ops, _span_ops
from attnlab.evolution.window import Window


@register_flop_formula(_ops.av._opoverload._overloadpacket)
def _av(maps: Any, _x: Any, *_rest: Any, out_shape: Any = None, **_: Any) -> int:
    return 2 * maps[2] * prod(out_shape)


@register_flop_formula(_ops.qk._opoverload._overloadpacket)
def _qk(q: Any, _x: Any, _groups: int, window: list[int], **_: Any) -> int:
    return 2 * Window.from_flat(window).taps * prod(q)


@register_flop_formula(_ops.sc._opoverload._overloadpacket)
def _sc(maps: Any, y: Any, *_rest: Any, **_: Any) -> int:
    return 2 * maps[2] * prod(y)


@register_flop_formula(_span_ops.spanned_av._opoverload._overloadpacket)
def _spanned(features: Any, x: Any, weight: Any, *rest: Any, **_: Any) -> int:
    span, aggregation = _span_products(features, x, weight, rest[-1])
    return span + aggregation


@register_flop_formula(_span_ops.spanned_av_backward._opoverload._overloadpacket)
def _spanned_backward(_grad: Any, features: Any, x: Any, weight: Any, *rest: Any, **_: Any) -> int:
    """The maps again, gradients of features and weight; gradients of maps and of x."""
    span, aggregation = _span_products(features, x, weight, rest[-1])
    return 3 * span + 2 * aggregation


def _span_products(features: Any, x: Any, weight: Any, window: list[int]) -> tuple[int, int]:
    pixels = 2 * features[0] * prod(features[2:])
    return pixels * prod(weight), pixels * Window.from_flat(window).taps * x[1]


@register_flop_formula(_attention_ops.attention._opoverload._overloadpacket)
def _attention(parts: Any, *rest: Any, **_: Any) -> int:
    scores, values = _products(parts, rest[-1])
    return scores + values


@register_flop_formula(_attention_ops.attention_backward._opoverload._overloadpacket)
def _attention_backward(_grad: Any, _stats: Any, parts: Any, *rest: Any, **_: Any) -> int:
    """Scores again, gradients of query and key; gradients of weights and of values."""
    scores, values = _products(parts, rest[-1])
    return 3 * scores + 2 * values


def _products(parts: Any, window: list[int]) -> tuple[int, int]:
    """FLOPs of scores and of values. `parts` are shapes."""
    query, values = parts[0], parts[-1][1]
    width = query[1]
    if len(parts) == 1:
        width = values = width // 3
    pixels = 2 * Window.from_flat(window).taps * query[0] * prod(query[2:])
    return pixels * width, pixels * values
