"""Functions with their own gradient, at the price of a plain function where nobody asks for it."""

from __future__ import annotations

from typing import Any

import torch


def gradients_wanted() -> bool:
    """Whether to compute in the form that has a fast gradient. A trace is made with gradients and
    checked without, and must be the same both times."""
    return torch.is_grad_enabled() or torch.jit.is_tracing()  # type: ignore[attr-defined]


def applied(function: type[torch.autograd.Function], *inputs: Any) -> Any:
    """`function.apply(*inputs)`; without gradients its forward alone.

    On a small map, getting ready for a gradient takes as long as the arithmetic.
    """
    return function.apply(*inputs) if gradients_wanted() else function.forward(*inputs)
