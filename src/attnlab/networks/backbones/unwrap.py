"""Weights as training scripts leave them: one entry of a checkpoint, names with a wrapper's prefix.

Both are taken off where that is sure, and a `WeightsNote` says what was.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from typing import TypeGuard

from torch import Tensor

AVERAGED = ("state_dict_ema", "model_ema", "ema_state_dict", "ema")
"""The entries of a checkpoint that may hold the running average (EMA) of the network's tensors."""
ENTRIES = ("state_dict", "model", *AVERAGED)
"""The entries of a checkpoint that may hold the network's tensors, the first that does wins."""
PREFIXES = ("module.", "_orig_mod.", "model.")
"""What DistributedDataParallel, torch.compile and Lightning put before names."""
_AVERAGED = "n_averaged"  # how many torch's AveragedModel took; its tensors are under "module."


class WeightsNote(UserWarning):
    """Warns which part of a file of weights was taken."""


def is_state(content: object) -> TypeGuard[Mapping[str, Tensor]]:
    """Return whether `content` is tensors by name."""
    return (
        isinstance(content, Mapping)
        and all(isinstance(name, str) for name in content)
        and all(isinstance(value, Tensor) for value in content.values())
    )


def entry_of(
    content: Mapping[str, object], source: str, *, ema: bool = False
) -> dict[str, Tensor] | None:
    """The tensors of the network in a checkpoint that holds more, or with `ema` their running
    average; None if there are none."""
    found = {name: state for name in ENTRIES if is_state(state := content.get(name)) and state}
    averages = [name for name in found if name in AVERAGED]
    if ema and not averages:
        return None
    if not found:
        return None
    first = averages[0] if ema else next(iter(found))
    others = " and ".join(repr(name) for name in found if name != first)
    instead = f" It has weights in {others}, too" if others else ""
    if instead:
        offer = not ema and averages and averages[0] != first
        instead += ": attnlab.open(..., ema=True), or --ema, takes the average." if offer else "."
    warnings.warn(f"Took {first!r} of {source!r}.{instead}", WeightsNote, stacklevel=2)
    return dict(found[first])


def without_prefix(
    state: Mapping[str, Tensor], expected: Collection[str], source: str
) -> dict[str, Tensor]:
    """`state` without the prefixes that all its names have and none of the `expected` ones."""
    renamed, taken = dict(state), ""
    while not any(name in expected for name in renamed):
        shorter = _shorter(renamed)
        if shorter is None:
            break
        prefix, renamed = shorter
        taken += prefix
    if not taken or not any(name in expected for name in renamed):
        return dict(state)  # whatever it is, the error names what is in the file
    warnings.warn(
        f"Took the names in {source!r} without {taken!r}, which all of them begin with.",
        WeightsNote,
        stacklevel=2,
    )
    return renamed


def _shorter(state: Mapping[str, Tensor]) -> tuple[str, dict[str, Tensor]] | None:
    names = [name for name in state if name != _AVERAGED]
    for prefix in PREFIXES:
        if names and all(name.startswith(prefix) for name in names):
            return prefix, {name.removeprefix(prefix): state[name] for name in names}
    return None
