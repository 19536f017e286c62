"""`describe_steps(network)`: what every step is made of, and what its gates do on some inputs."""

from __future__ import annotations

import time
from itertools import chain

import torch
from torch import Tensor

from attnlab._errors import InputError
from attnlab.gates import HyperConnections
from attnlab.instruments.forms.gains import CarryGains
from attnlab.instruments.forms.result import OwnGate, StepParts, StepsResult
from attnlab.instruments.stripe.measure import GateStreams
from attnlab.residuals import GateSource, Observer, SeenGate, Step, Watchable, watchable
from attnlab.residuals.example import call, evaluating, uncompiled
from attnlab.residuals.inputs import Batches, head, inputs_of
from attnlab.residuals.padding import MaskArgument, mask_argument
from attnlab.residuals.steps import no_steps_error
from attnlab.residuals.watching import watching
from attnlab.subject import Source, subject_of

INPUTS = 64
"""How many are looked at, unless the subject was opened with a limit."""
_ROLES = {"end": "size", "inside": "inside", "elsewhere": "inside"}


def describe_steps(
    network: Source, loader: Batches | None = None, *, name: str | None = None
) -> StepsResult:
    """What the steps of a network are made of: X' = carry(X) + write(Δt ⊗ f(read(X))), read off one
    recorded run, with their gates and matrices over inputs, and how much the carries amplify.

    Runs in eval mode without gradients, over 64 inputs unless the limit is another.

    Args:
        network: any network with residual steps, as for `attnlab.open`.
        loader: batches in the place of the network's own images: tensors, tuples whose first
            element is one, or dictionaries of inputs.
        name: of the network, for the report.
    """
    began = time.perf_counter()
    subject = subject_of(network, loader)
    model = uncompiled(subject.network)
    inputs = (each for batch in subject.inputs(INPUTS) for each in inputs_of(batch, model))
    first = next(inputs, None)
    if first is None:
        raise InputError("Expected a loader with at least one batch but got an empty one.")
    found = watchable(model, head(first, 1))
    if not found.steps:
        raise no_steps_error(model, found.run)
    seen = _Seen(found, mask_argument(model))
    with evaluating(model), watching(model, seen, found=found):
        for batch in chain([first], inputs):
            call(model, batch)
    measured = StepsResult(
        network=name or subject.name,
        inputs=seen.gates.reservoir.seen,
        steps=tuple(_parts(step, seen) for step in found.steps),
        seconds=time.perf_counter() - began,
    )
    return subject.sign(measured)


class _Seen(Observer):
    """The moments of all gates, and the gains of the carries."""

    sees_products = True

    def __init__(self, found: Watchable, mask: MaskArgument | None) -> None:
        self.gains = CarryGains(found.steps)
        once = [gate for gate in found.gates if len(gate.calls) == 1]
        self.gates = GateStreams(once, 1, mask)
        self._carried: dict[int, Tensor] = {}
        self.of_step: dict[str, list[GateSource]] = {}
        for gate in once:
            for step, _ in gate.calls.values():
                self.of_step.setdefault("" if step is None else step.label, []).append(gate)

    def gain_of_streams(self, step: Step, matrix: Tensor) -> float:
        """Return the gain of the carries of a stage from its first step with streams up to this
        one."""
        before = self._carried.get(step.stage)
        self._carried[step.stage] = matrix if before is None else matrix @ before
        return torch.linalg.matrix_norm(self._carried[step.stage], 2).item()

    def call_begun(self, arguments: tuple[object, ...], keywords: dict[str, object]) -> None:
        self.gates.call_begun(arguments, keywords)

    def gate_seen(self, seen: SeenGate) -> None:
        self.gates.gate_seen(seen)
        self.gains.gate_seen(seen)

    def call_ended(self, output: object) -> None:
        self.gates.call_ended(output)
        self.gains.call_ended(output)


def _parts(step: Step, seen: _Seen) -> StepParts:
    form = step.form
    for gate in seen.of_step.get(step.label, ()):
        if isinstance(gate.module, HyperConnections):
            return _streams_of(step, gate.module, seen)
    streams = f" over {form.streams} streams"
    return StepParts(
        label=step.label,
        stage=step.stage,
        name=step.name,
        formula=str(form),
        carry=form.carry,
        read=f"a row{streams}" if form.having("read") else "X",
        write=f"a column{streams}" if form.having("write") else "X",
        streams=form.streams,
        factor=form.factor,
        gates=tuple(_gate(gate, seen) for gate in seen.of_step.get(step.label, ())),
        gain=seen.gains.gain[step.key],
        gain_to_here=seen.gains.gain_to_here[step.key],
    )


def _streams_of(step: Step, gate: HyperConnections, seen: _Seen) -> StepParts:
    """Describe a step that attnlab gave hyper-connections."""
    with torch.no_grad():
        matrix = gate.matrix.double()
    return StepParts(
        label=step.label,
        stage=step.stage,
        name=step.name,
        formula="C X + w f(r X)",
        carry="matrix",
        read=f"a row over {gate.streams} streams",
        write=f"a column over {gate.streams} streams",
        streams=gate.streams,
        factor=step.form.factor,
        gates=tuple(_gate(each, seen) for each in seen.of_step[step.label]),
        gain=torch.linalg.matrix_norm(matrix, 2).item(),
        gain_to_here=seen.gain_of_streams(step, matrix),
    )


def _gate(gate: GateSource, seen: _Seen) -> OwnGate:
    stream = seen.gates.streams[gate.name]
    (position,) = (position for _, position in gate.calls.values())
    role = gate.multipliers[0].role if gate.multipliers else _ROLES[position]
    return OwnGate(
        name=gate.name,
        role=role,
        kind=gate.kind,
        numbers=len(stream.mean),
        mean=stream.mean.mean().item(),
        smallest=stream.low.min().item(),
        largest=stream.high.max().item(),
        spread=stream.spread().mean().item(),
    )
