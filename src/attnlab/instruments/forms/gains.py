"""How much the carries of a network amplify its state: one by one, and their product over depth.

Where no branch adds anything, a state of n streams goes through `C_t … C_1 X`, one n×n matrix for
each place. The gain of a matrix is its largest singular value: no direction of the streams grows by
more. Manifold-constrained hyper-connections keep every C doubly stochastic, so that each gain and
that of each product is 1 (Birkhoff: a mean of permutations), and unconstrained ones do not.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from attnlab.residuals import GateSource, Observer, SeenGate, Step, StepKey


class CarryGains(Observer):
    """The gains of the carries in every call of a network that is watched, the largest of all
    places and inputs."""

    sees_products = True

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = tuple(steps)
        self.gain: dict[StepKey, float] = {}
        """Of the carry of each step, as far as it is known: 1 where the state goes on as it is."""
        self.gain_to_here: dict[StepKey, float] = {}
        """Of the product of the carries since the stage began, the step's own included."""
        self._matrices: dict[StepKey, Tensor] = {}

    def gate_seen(self, seen: SeenGate) -> None:
        """Keep the matrix of a step until the call ends."""
        if seen.step is not None and seen.step.form.carry == "matrix" and _carries(seen.gate):
            self._matrices[seen.step.key] = seen.value.detach().double()

    def call_ended(self, output: object) -> None:
        """Take in the matrices of the call."""
        del output
        product: Tensor | float | None = 1.0
        stage = 0
        for step in self.steps:
            if step.stage != stage:
                stage, product = step.stage, 1.0
            own = self._carry(step)
            product = None if own is None or product is None else _after(own, product)
            _grow(self.gain, step.key, own)
            _grow(self.gain_to_here, step.key, product)
        self._matrices.clear()

    def _carry(self, step: Step) -> Tensor | float | None:
        """The matrix or the number that carries the state; None for layers, which nobody can
        multiply up."""
        if step.form.carry == "identity":
            return 1.0
        if step.form.carry == "matrix":
            return self._matrices.get(step.key)
        if step.form.carry == "layers":
            return None
        value = 1.0
        for each in step.form.having("carry"):
            if each.value is None:
                return None
            value *= each.value
        return value


def _carries(gate: GateSource) -> bool:
    return bool(gate.multipliers) and gate.multipliers[0].role == "carry"


def _after(own: Tensor | float, before: Tensor | float) -> Tensor | float:
    """`own` after what came before."""
    if isinstance(own, Tensor) and isinstance(before, Tensor):
        return own @ before
    return own * before


def _grow(gains: dict[StepKey, float], key: StepKey, carry: Tensor | float | None) -> None:
    if carry is None:
        gains[key] = float("nan")
        return
    if isinstance(carry, Tensor):
        gain = float(torch.linalg.matrix_norm(carry, 2).max())
    else:
        gain = abs(carry)
    gains[key] = max(gain, gains.get(key, gain))
