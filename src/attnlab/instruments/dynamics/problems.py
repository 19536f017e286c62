"""Classical stiff problems, written in torch, integrated by scipy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from attnlab._errors import AttnlabError, InputError
from attnlab._extras import needs

States = Float[Tensor, "times size"]
RightHandSide = Callable[[Float[Tensor, " size"]], Float[Tensor, " size"]]
"""f of du/dt = f(u), written in torch, for one state."""


def stiffness_index(rhs: RightHandSide, states: States) -> Float[Tensor, " times"]:
    """SI at every state, from the autograd Jacobian and all its eigenvalues."""
    jacobians = torch.func.vmap(torch.func.jacrev(rhs))(states)
    return torch.linalg.eigvals(jacobians).real.abs().amax(1)


def stiffness_aware_index(rhs: RightHandSide, states: States) -> Float[Tensor, " times"]:
    """SAI at every state, from the right-hand side: ‖f(u)‖ / ‖u‖."""
    return torch.func.vmap(rhs)(states).norm(dim=1) / states.norm(dim=1)


def observed_stiffness_aware_index(
    states: States, times: Float[Tensor, " times"]
) -> Float[Tensor, " steps"]:
    """SAI of observations: ‖(u_{i+1} − u_i) / (t_{i+1} − t_i)‖ / ‖u_i‖, one fewer than times.

    A time step of 1/SI already underestimates a decaying solution by 37 %.
    """
    if len(states) != len(times) or len(times) < 2:
        raise InputError(
            f"Expected one time per state and at least two but got {len(states)} states and "
            f"{len(times)} times."
        )
    rates = states.diff(dim=0) / times.diff().unsqueeze(1)
    return rates.norm(dim=1) / states[:-1].norm(dim=1)


@dataclass(frozen=True)
class Problem:
    """An initial value problem du/dt = f(u), u(0) = initial, 0 ≤ t ≤ end."""

    name: str
    rhs: RightHandSide
    initial: tuple[float, ...]
    end: float
    log_times: bool = False
    """Whether the solution lives on a logarithmic time axis."""

    def times(self, number: int) -> NDArray[np.float64]:
        """`number` observation times, evenly spaced on the problem's own axis."""
        if self.log_times:
            return np.concatenate([[0.0], np.geomspace(1e-6 * self.end, self.end, number - 1)])
        return np.linspace(0.0, self.end, number)


class Solution(NamedTuple):
    """States (times, size) in float64."""

    times: Tensor
    states: Tensor


class IntegrationError(AttnlabError, RuntimeError):
    """The integrator gave up."""


def solve(problem: Problem, number: int = 2001) -> Solution:
    """The solution at `number` times, by an implicit method of order 5 (Radau IIA, rtol 1e-8)."""
    with needs("dynamics"):
        from scipy.integrate import solve_ivp

    times = problem.times(number)
    found = solve_ivp(
        lambda _, u: problem.rhs(torch.from_numpy(u)).numpy(),
        (0.0, problem.end),
        np.array(problem.initial),
        method="Radau",
        t_eval=times,
        rtol=1e-8,
        atol=1e-12,
    )
    if not found.success:
        raise IntegrationError(f"{problem.name}: {found.message}")
    return Solution(torch.from_numpy(times), torch.from_numpy(found.y.T.copy()))


def van_der_pol(mu: float, end: float) -> Problem:
    """u'' = μ (1 − u²) u' − u, over about two periods."""

    def rhs(state: Tensor) -> Tensor:
        u, v = state.unbind()
        return torch.stack([v, mu * (1 - u * u) * v - u])

    return Problem(f"Van der Pol, μ = {mu:g}", rhs, (2.0, 0.0), end)


def _robertson(state: Tensor) -> Tensor:
    a, b, c = state.unbind()
    slow, fast, catalysed = 0.04 * a, 3e7 * b * b, 1e4 * b * c
    return torch.stack([catalysed - slow, slow - catalysed - fast, fast])


def _hires(state: Tensor) -> Tensor:
    """Eight reactions that explain the growth of plant tissue under high irradiance."""
    a, b, c, d, e, f, g, h = state.unbind()
    bound = 280.0 * f * h
    return torch.stack(
        [
            -1.71 * a + 0.43 * b + 8.32 * c + 0.0007,
            1.71 * a - 8.75 * b,
            -10.03 * c + 0.43 * d + 0.035 * e,
            8.32 * b + 1.71 * c - 1.12 * d,
            -1.745 * e + 0.43 * f + 0.43 * g,
            -bound + 0.69 * d + 1.71 * e - 0.43 * f + 0.69 * g,
            bound - 1.81 * g,
            -bound + 1.81 * g,
        ]
    )


PROBLEMS: dict[str, Problem] = {
    "van_der_pol_1": van_der_pol(1.0, 14.0),
    "van_der_pol_100": van_der_pol(100.0, 325.0),
    "van_der_pol_1000": van_der_pol(1000.0, 3230.0),
    "robertson": Problem("Robertson", _robertson, (1.0, 0.0, 0.0), 1e5, log_times=True),
    "hires": Problem("HIRES", _hires, (1.0, 0, 0, 0, 0, 0, 0, 0.0057), 321.8122),
}
"""The classical stiff problems by name."""
