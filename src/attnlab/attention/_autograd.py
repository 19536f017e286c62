"""Functions with their own gradient, at the price of a plain function where nobody asks for it."""

from __future__ import annotations

from typing import Any

import torch


def applied(function: type[torch.autograd.Function], *inputs: Any) -> Any:
    """`function.apply(*inputs)`; without gradients its forward alone.

    On a small map, getting ready for a gradient takes as long as the arithmetic.
    """
    return function.apply(*inputs) if torch.is_grad_enabled() else function.forward(*inputs)
