"""FLOP formulas of the native operators for `torch.utils.flop_counter`: two per multiply-add.

The softmax is not counted, as torch does not count it for its own attention.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.flop_counter import register_flop_formula

from attnlab.evolution import _attention_ops, _ops


def _product(shape: Any) -> int:
    return int(torch.Size(shape).numel())


@register_flop_formula(_ops.av._opoverload._overloadpacket)
def _av(maps: Any, _x: Any, *_rest: Any, out_shape: Any = None, **_: Any) -> int:
    return 2 * maps[2] * _product(out_shape)


@register_flop_formula(_ops.qk._opoverload._overloadpacket)
def _qk(q: Any, _x: Any, _groups: int, kernel: Any, *_rest: Any, **_: Any) -> int:
    return 2 * kernel[0] * kernel[1] * _product(q)


@register_flop_formula(_ops.sc._opoverload._overloadpacket)
def _sc(maps: Any, y: Any, *_rest: Any, **_: Any) -> int:
    return 2 * maps[2] * _product(y)


@register_flop_formula(_attention_ops.attention._opoverload._overloadpacket)
def _attention(query: Any, _key: Any, value: Any, *rest: Any, **_: Any) -> int:
    taps = rest[6][0] * rest[6][1]
    return 2 * taps * (_product(query) + value[1] * _product(query) // query[1])


@register_flop_formula(_attention_ops.attention_packed._opoverload._overloadpacket)
def _packed(packed: Any, *rest: Any, **_: Any) -> int:
    taps = rest[6][0] * rest[6][1]
    return 4 * taps * _product(packed) // 3
