"""The gates of one step as one: their product, channel by channel."""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from attnlab._errors import InputError
from attnlab.residuals import SeenGate


class GateShown(NamedTuple):
    """A gate at the end of a branch, and the shape of what it multiplied."""

    shape: torch.Size
    seen: SeenGate


def gate_product(gates: list[GateShown], inputs: int, counted: Tensor | None) -> Tensor:
    """(inputs, channels), averaged over space; over the counted tokens, (inputs, tokens), alone."""
    layouts: dict[tuple[torch.Size, int], SeenGate] = {}
    for shape, seen in gates:
        layout = (shape, seen.gate.channel_axis)
        if layout in layouts:
            seen = seen._replace(value=layouts[layout].value * seen.value)
        layouts[layout] = seen
    values = [_of_inputs(seen.by_channel(), inputs) for seen in layouts.values()]
    if sum(value.shape[2] > 1 for value in values) > 1:
        names = ", ".join(repr(seen.gate.name) for _, seen in gates)
        raise InputError(
            f"{names}: these gates of one step differ from place to place, in two layouts, so "
            f"their product is not known. Capture the network with one of them."
        )
    means = [_mean(value, counted) for value in values]
    return reduce(torch.mul, means).expand(inputs, -1)


def _mean(value: Tensor, counted: Tensor | None) -> Tensor:
    if counted is None or value.shape[2] == 1:
        return value.mean(2)
    weights = counted.to(value)[:, None]
    return (value * weights).sum(2) / weights.sum(2)


def _of_inputs(gate: Tensor, inputs: int) -> Tensor:
    """In float32 at least, with windows that are folded into the batch among the places."""
    gate = gate.to(torch.promote_types(gate.dtype, torch.float32))
    if len(gate) <= inputs:
        return gate
    return gate.unflatten(0, (inputs, -1)).movedim(1, 2).flatten(2)
