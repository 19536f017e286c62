"""The steps of a block as one: where it begins, what it adds in all, where it ends."""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from attnlab._errors import InputError
from attnlab.instruments.stiffness.plan import Plan, Span
from attnlab.residuals import SeenGate, SeenStep, StepKey


class Sums(NamedTuple):
    """What a block has added up so far. All are copies, for a block may add in place."""

    start: Tensor
    """x_t."""
    branch: Tensor
    """Σ f, before the gates at the ends of the branches."""
    update: Tensor
    """Σ f ⊗ Δt, what was added."""
    state: Tensor
    """After the last activation."""
    normed: Tensor
    """After the norm that follows it as well."""

    def features(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """x_t, f, f ⊗ Δt, x_{t+1} − x_t and the same after the norm."""
        start, branch, update, state, normed = self
        return start, branch, update, state - start, normed - start


class BlockSums:
    """Grows while the steps of a block are made."""

    def __init__(self, span: Span) -> None:
        self.span = span
        self.mutated = False
        self.sums: Sums | None = None
        self._before: dict[StepKey, Tensor] = {}

    def before_gate(self, key: StepKey, branch: Tensor) -> None:
        """Return what the first gate at the end of a step's branch multiplies."""
        self._before[key] = branch.clone()

    def add(self, seen: SeenStep, plan: Plan) -> Sums:
        """A step of the block is about to be made."""
        key = seen.step.key
        branch = self._before.pop(key, seen.branch)
        if branch.shape != seen.branch.shape:
            raise InputError(
                f"The gate of step {seen.step.label} multiplies a tensor of shape "
                f"{tuple(branch.shape)} where {tuple(seen.branch.shape)} is added, so what the "
                f"block adds without it is not known. Measure single steps: granularity='step'."
            )
        self.mutated |= seen.mutated
        total = seen.shortcut + seen.branch
        activation, norm = plan.activations[key], plan.norms[key]
        state = total if activation is None else activation(total)
        normed = state if norm is None else norm(total)
        if self.sums is None:
            copies = seen.shortcut.clone(), branch.clone(), seen.branch.clone()
            self.sums = Sums(*copies, state, normed)
        else:
            start, branches, update = self._in_shape(seen, self.sums)
            self.sums = Sums(start, branches + branch, update + seen.branch, state, normed)
        return self.sums

    def _in_shape(self, seen: SeenStep, sums: Sums) -> tuple[Tensor, Tensor, Tensor]:
        """Return the sums in the shape of the state that comes next (Swin makes rows of maps), if
        only the shape differs."""
        shape = seen.shortcut.shape
        if shape == sums.start.shape:
            return sums.start, sums.branch, sums.update
        same_number = sums.normed.numel() == seen.shortcut.numel()
        if not same_number or not torch.equal(sums.normed.reshape(shape), seen.shortcut):
            raise InputError(
                f"Block {self.span.first.label} ({self.span.first.name}) begins with a state of "
                f"shape {tuple(sums.start.shape)} and step {seen.step.label} has another, of "
                f"shape {tuple(shape)}, so the block is not a single step. Measure the steps one "
                f"by one: granularity='step'."
            )
        return (
            sums.start.reshape(shape),
            sums.branch.reshape(shape),
            sums.update.reshape(shape),
        )


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


def own_gate(seen: SeenGate, inputs: int, counted: Tensor | None) -> Tensor:
    """(inputs, numbers) of what the network itself multiplies by, averaged as `gate_product` is."""
    value = _of_inputs(seen.by_channel(), inputs)
    if counted is not None and value.shape[2] not in (1, counted.shape[1]):
        raise InputError(
            f"{seen.gate.name} has {value.shape[2]} places for {counted.shape[1]} tokens, so which "
            f"of them count is not known. Capture without it: own_gates=False."
        )
    return _mean(value, counted).expand(inputs, -1)


def _mean(value: Tensor, counted: Tensor | None) -> Tensor:
    if counted is None or value.shape[2] == 1:
        return value.mean(2)
    weights = counted.to(value)[:, None]
    return (value * weights).sum(2) / weights.sum(2)


def _of_inputs(gate: Tensor, inputs: int) -> Tensor:
    """Return the gate in float32 at least, with windows that are folded into the batch among the
    places."""
    gate = gate.to(torch.promote_types(gate.dtype, torch.float32))
    if len(gate) <= inputs:
        return gate
    return gate.unflatten(0, (inputs, -1)).movedim(1, 2).flatten(2)
