"""Surgery is checked in float64: in float32 a deep network can show a relative error of 1 where the
surgery is right to 1e-8."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_map

from attnlab.residuals.example import Example, as_call

MOST_PARAMETERS = 500_000_000
"""Larger networks are not copied to float64: the copy alone would take 4 GB."""


def double_example(network: nn.Module, example: Example | None) -> Example:
    """The example, or the one made for `network`, in float64."""
    if example is None:
        arguments, _ = as_call(network, None)
        example = arguments[0]
    return tree_map(_double, example)


def _double(leaf: Any) -> Any:
    return leaf.double() if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf


def exchange(network: nn.Module, old: nn.Module, new: nn.Module) -> None:
    """Put `new` wherever `old` is registered: a module may be shared."""
    for module in list(network.modules()):
        for name, child in list(module._modules.items()):
            if child is old:
                setattr(module, name, new)
