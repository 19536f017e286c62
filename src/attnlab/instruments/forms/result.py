"""What was found about the parts of a network's steps."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import isfinite
from typing import ClassVar

from attnlab.instruments.block_figures import width_of
from attnlab.page.plot import Spec
from attnlab.page.tables import Cell, Table, number_cell
from attnlab.results.base import Number, Result

EXACT = 1e-6
"""Gains that differ by less from 1 are 1: Sinkhorn's iterations stop at about this in float32."""


@dataclass(frozen=True)
class OwnGate:
    """What multiplies in a step, over all inputs and places."""

    name: str
    role: str
    """carry, read, write, size (Δt at the end of the branch) or inside (within f)."""
    kind: str
    """`product` of the network itself, `inserted` by attnlab, its `own` module, or in a `norm`."""
    numbers: int
    """How many it has for one place: channels, heads, streams, or elements of a matrix."""
    mean: Number
    smallest: Number
    largest: Number
    spread: Number
    """Standard deviation over inputs, mean over the numbers."""

    def __str__(self) -> str:
        spread = f" ± {self.spread:.2g}" if self.spread else ", constant"
        return f"{self.role} {self.mean:.3g}{spread}"


@dataclass(frozen=True)
class StepParts:
    """One step: `X' = carry(X) + write(Δt ⊗ f(read(X)))`."""

    label: str
    stage: int
    name: str
    formula: str
    """`X + f(X)`, `X + 0.22 f(X)`, `C X + w f(r X)`; f° has a gate inside."""
    carry: str
    """identity, factor, matrix or layers."""
    read: str
    """What the branch reads: `X`, or `a row over 4 streams`."""
    write: str
    """Where it is added: `X`, or `a column over 4 streams`."""
    streams: int
    factor: Number
    """The constant number that scales the branch."""
    gates: tuple[OwnGate, ...]
    gain: Number
    """The largest singular value of what carries the state, over all places and inputs; NaN for
    layers."""
    gain_to_here: Number
    """The gain of the product of the carries since the stage began."""


@dataclass(frozen=True)
class StepsResult(Result):
    """The steps of a network, with what carries, reads, writes and multiplies in each."""

    FORMAT: ClassVar[str] = "attnlab steps 1"

    network: str
    inputs: int
    steps: tuple[StepParts, ...]

    @property
    def verdict(self) -> str:
        """The forms that the steps have, their streams and gates, and what the carries amplify."""
        forms = Counter(step.formula for step in self.steps)
        counted = ", ".join(f"{form} ({number})" for form, number in forms.items())
        stages = len({step.stage for step in self.steps})
        text = f"{len(self.steps)} steps in {_plural(stages, 'stage')}: {counted}."
        streams = max((step.streams for step in self.steps), default=1)
        if streams > 1:
            text += f" The state has {streams} streams."
        gates = [gate for step in self.steps for gate in step.gates]
        if gates:
            constant = sum(gate.spread == 0 for gate in gates)
            text += (
                f" {_plural(len(gates), 'multiplier')} (gates, scales, matrices), {constant} of "
                f"them the same for all inputs."
            )
        return text + self._amplified()

    def _amplified(self) -> str:
        if not any(step.carry in ("matrix", "factor") for step in self.steps):
            return ""
        gains = [step.gain_to_here for step in self.steps if isfinite(step.gain_to_here)]
        if not gains:
            return ""
        largest = max(gains)
        bounded = "1 to rounding" if abs(largest - 1) < EXACT else f"{largest:.4g}"
        return f" What carries the state amplifies no direction of it by more than {bounded}."

    def table(self) -> Table:
        """Return a table with a row per step."""
        columns = ["step", "module", "update", "streams", "multiplied by", "gain", "gain to here"]
        rows = [
            [
                Cell(step.label),
                Cell(step.name),
                Cell(step.formula),
                Cell(str(step.streams)),
                Cell("; ".join(map(str, step.gates)) or "-"),
                number_cell(step.gain, "{:.4g}"),
                number_cell(step.gain_to_here, "{:.4g}"),
            ]
            for step in self.steps
        ]
        return Table(columns, rows, f"{self.network}, {_plural(self.inputs, 'input')}", names=3)

    def figures(self) -> dict[str, Spec]:
        """Vega-Lite specifications: `gates`, their means over depth, if there are any."""
        values: list[dict[str, str | float]] = [
            {"step": step.label, "gate": _LEGEND.get(gate.role, gate.role), "mean": gate.mean}
            for step in self.steps
            for gate in step.gates
            if isfinite(gate.mean)
        ]
        return {"gates": gate_means_figure(values)} if values else {}


_LEGEND = {"size": "step size"}
"""What pictures call a role whose name says too little beside the others."""


def _plural(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def gate_means_figure(values: list[dict[str, str | float]]) -> Spec:
    """The mean of every gate over the steps of a network."""
    return {
        "width": width_of(len({value["step"] for value in values})),
        "height": 220,
        "data": {"values": values},
        "mark": {"type": "point", "filled": True, "size": 60},
        "encoding": {
            "x": {"field": "step", "type": "nominal", "sort": None, "title": "step"},
            "y": {"field": "mean", "type": "quantitative", "title": "mean of the gate"},
            "color": {"field": "gate", "type": "nominal", "title": "where it multiplies"},
        },
    }
