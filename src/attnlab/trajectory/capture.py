"""Watch the steps of a network while it runs: norms and gates, and no feature map kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attnlab._errors import InputError
from attnlab.insert import Observer, SeenGate, SeenStep, Step, StepKey, watching
from attnlab.record.example import Example
from attnlab.record.inputs import number_of_inputs
from attnlab.trajectory.conventions import StepNorms
from attnlab.trajectory.norms import norm, step_norms
from attnlab.trajectory.plan import Plan, plan
from attnlab.trajectory.stages import Stages


class CapturedStep(NamedTuple):
    """One step of the last forward; norms are per input."""

    step: Step
    shortcut: Tensor
    """‖x_t‖."""
    branch: Tensor
    """‖f(x_t)‖, before the gates that attnlab inserted at the end of the branch; else what the
    network adds. A gate further inside is a part of f."""
    update: Tensor
    """‖f(x_t) ⊗ Δt‖, what the network adds."""
    change: Tensor
    """‖x_{t+1} − x_t‖, after the activation that follows the addition, if any."""
    gate: Tensor | None
    """Δt, (inputs, channels): the product of these gates, averaged over space where it varies
    there; None without one."""
    mutated: bool
    """Whether x_t was changed in place between the owner's entry and the addition. The norms are
    those of what is really added; the state that the previous step left is another one."""


class Captured(Observer):
    """What the last forward of the watched network showed; a sequence of `CapturedStep`."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._found: dict[StepKey, CapturedStep] = {}
        self._gates: dict[StepKey, list[tuple[torch.Size, SeenGate]]] = {}
        """At the end of the branch: the shape of what each multiplied, which is not kept."""
        self._branches: dict[StepKey, Tensor] = {}
        self._inputs = 0

    @property
    def stages(self) -> Stages:
        """The stage of every step."""
        return self.plan.stages

    @property
    def norms(self) -> StepNorms:
        """All norms of the last forward, each (inputs, steps)."""
        steps = list(self)
        return StepNorms(
            torch.stack([step.shortcut for step in steps], 1),
            torch.stack([step.branch for step in steps], 1),
            torch.stack([step.update for step in steps], 1),
            torch.stack([step.change for step in steps], 1),
        )

    def __iter__(self) -> Iterator[CapturedStep]:
        missing = [step for step in self.plan.steps if step.key not in self._found]
        if missing:
            raise InputError(
                f"{len(missing)} of {len(self)} steps were not seen in the last forward, the first "
                f"of them {missing[0].label} ({missing[0].name}). Run the network inside the "
                f"`with` block; if it takes another path on this input, pass example=."
            )
        return (self._found[step.key] for step in self.plan.steps)

    def __len__(self) -> int:
        return len(self.plan.steps)

    def call_begun(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """Forget the last forward."""
        self._found.clear()
        self._gates.clear()
        self._branches.clear()
        self._inputs = number_of_inputs(arguments, keywords)

    def gate_seen(self, seen: SeenGate) -> None:
        if seen.gate.kind != "inserted":
            return
        if seen.position == "unknown":
            raise InputError(
                f"The gate {seen.gate.name!r} acts in a call that was not made on the example, so "
                f"its step is not known. Pass an example that takes this path: example=..."
            )
        if seen.step is None or seen.position != "end" or seen.branch is None:
            return
        key = seen.step.key
        if key not in self._gates:
            self._branches[key] = norm(seen.branch.detach(), self._inputs)
        told = (seen.branch.shape, seen._replace(branch=None))
        self._gates.setdefault(key, []).append(told)

    def step_seen(self, seen: SeenStep) -> None:
        step, inputs = seen.step, self._inputs
        if inputs == 0 or seen.shortcut.shape[0] % inputs:
            raise InputError(
                f"Expected the state of step {step.label} ({step.name}) to have the {inputs} "
                f"inputs along its first axis but got shape {tuple(seen.shortcut.shape)}."
            )
        activation = self.plan.activations[step.key]
        with torch.no_grad():
            norms = step_norms(seen.shortcut, seen.branch, inputs, activation)
            gates = self._gates.pop(step.key, [])
            gate = _product(gates, inputs) if gates else None
        state, update, change = norms
        branch = self._branches.pop(step.key, update)
        self._found[step.key] = CapturedStep(
            step, state, branch, update, change, gate, seen.mutated
        )


def _product(gates: list[tuple[torch.Size, SeenGate]], inputs: int) -> Tensor:
    """The product of the gates of a step, (inputs, channels), averaged over space."""
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
    return reduce(torch.mul, [value.mean(2) for value in values]).expand(inputs, -1)


def _of_inputs(gate: Tensor, inputs: int) -> Tensor:
    """In float32 at least, with windows that are folded into the batch among the places."""
    gate = gate.to(torch.promote_types(gate.dtype, torch.float32))
    if len(gate) <= inputs:
        return gate
    return gate.unflatten(0, (inputs, -1)).movedim(1, 2).flatten(2)


@contextmanager
def capture(model: nn.Module, example: Example | None = None) -> Iterator[Captured]:
    """Watch `model` inside a `with` block; afterwards it is as before, whatever happened.

        with capture(model) as steps:
            model(images)
            nsi(steps.norms, "branch")      # (inputs, steps)

    Every forward of the network replaces what the one before showed. `example` is an input to find
    the steps with; one is made up when None.
    """
    captured = Captured(plan(model, example))
    with watching(model, captured, found=captured.plan.found):
        yield captured
