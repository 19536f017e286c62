"""`load()` with gates: a network without any takes those of the weights, then copies by name."""

from __future__ import annotations

from functools import wraps
from typing import Any

from torch import nn

from attnlab._errors import InputError
from attnlab.bridges.ultralytics._transplant import (
    check_same_gates,
    gates_of,
    norms_with_gates,
    transplant,
)


def loads(load: Any) -> Any:
    """Their `BaseModel.load`, with gates."""

    @wraps(load)
    def load_with_gates(self: Any, weights: Any, verbose: bool = True) -> Any:
        found = (weights.get("ema") or weights["model"]) if isinstance(weights, dict) else weights
        if isinstance(found, nn.Module):
            check_norms(found)
            if gates_of(found) and gates_of(self):
                check_same_gates(found, self)
            elif gates_of(found):
                transplant(found, self)
        return load(self, weights, verbose)

    load_with_gates.keeps_gates = True  # type: ignore[attr-defined]
    return load_with_gates


def check_norms(network: nn.Module) -> None:
    """Refuse norms with a gate inside: a trainer builds plain ones, a validation fuses them."""
    norms = norms_with_gates(network)
    if norms:
        raise InputError(
            f"The norm {norms[0]!r} has a gate inside (iebn), and Ultralytics fuses norms into the "
            f"convolutions before them in every validation. Choose 'ie', the same gate behind a "
            f"layer."
        )
