"""Three bodies in the plane, and how rarely they come close.

The ICCV paper cites "91.4 % of 1,000 trajectories contain a close encounter, 4.2 % of the time
intervals do" and defines neither the trajectories nor an encounter. The definition here fits the
two numbers at round values. It is consistent with the paper, not confirmed by it:

* equal unit masses, G = 1; an equilateral ring of radius U(0.9, 1.2), turned at random, with the
  speed of the circular orbit;
* every component of every velocity multiplied by 1 + 0.2·U(−1, 1);
* 0 ≤ t ≤ 20; an encounter is a time at which the least pair distance is below 0.4; its share of the
  time is taken over trajectories that have one.

Close encounters need short time steps, and different trajectories have them at different times. In
the regular time s, dt/ds = (Σ d_ij⁻³)^(−1/2), steps of one length suit them all, so that scipy
integrates a hundred trajectories as one system, each with its own clock t as a further unknown.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnlab._checked import check_whole
from attnlab._extras import needs

Array = NDArray[np.float64]

END = 20.0
"""The time at which a trajectory ends."""
DISTANCE = 0.4
"""Bodies that are nearer than this are in an encounter."""
RTOL = 1e-10
"""Relative tolerance of the integration; the absolute one is a hundredth of it."""
TOGETHER = 100
"""Trajectories that are integrated as one system."""
SAMPLES_PER_STEP = 8
"""Places of a step of the integrator at which distances are looked at."""


class Encounters(NamedTuple):
    """How close the bodies of each trajectory come, and how exactly it was integrated."""

    share: Array
    """Share of the time during which two bodies are closer than the distance."""
    energy_drift: Array
    """|E(end) / E(0) − 1|: what the integration did to a constant of motion."""


class EncounterSummary(NamedTuple):
    """The paper's two numbers with their standard errors, in per cent."""

    trajectories: int
    with_encounter: float
    with_encounter_error: float
    time: float
    time_error: float
    largest_energy_drift: float


def initial_states(number: int, rng: np.random.Generator) -> Array:
    """(12, number): x and y of the three bodies, then their velocities."""
    radius = rng.uniform(0.9, 1.2, number)
    angle = rng.uniform(0, 2 * np.pi, number) + np.arange(3)[:, None] * 2 * np.pi / 3
    cosine, sine = np.cos(angle), np.sin(angle)
    position = radius * np.stack([cosine, sine], 1)
    circular = (np.sqrt(3) * radius) ** -0.5
    velocity = circular * np.stack([-sine, cosine], 1)
    velocity *= 1 + 0.2 * rng.uniform(-1, 1, velocity.shape)
    return np.concatenate([position.reshape(6, number), velocity.reshape(6, number)])


def _separations(state: Array) -> Array:
    """(3, 2, number): from body 0 to 1, 1 to 2, 2 to 0."""
    position = state[:6].reshape(3, 2, -1)
    return np.roll(position, -1, 0) - position


def least_distance(state: Array) -> Array:
    """The least of the three pair distances of each trajectory."""
    return np.asarray(np.sqrt((_separations(state) ** 2).sum(1)).min(0))


def energy(state: Array) -> Array:
    """Kinetic plus potential energy of each trajectory."""
    distance = np.sqrt((_separations(state) ** 2).sum(1))
    return np.asarray(0.5 * (state[6:12] ** 2).sum(0) - (1 / distance).sum(0))


def _rates(state: Array) -> tuple[Array, Array]:
    """du/dt, and the inverse cubes of the pair distances."""
    separation = _separations(state)
    cubes = (separation**2).sum(1) ** -1.5
    pull = separation * cubes[:, None]
    acceleration = pull - np.roll(pull, 1, 0)
    return np.concatenate([state[6:12], acceleration.reshape(6, -1)]), cubes


def _regular_rates(_: float, flat: Array) -> Array:
    state = flat.reshape(13, -1)
    rates, cubes = _rates(state)
    clock = cubes.sum(0) ** -0.5
    return np.concatenate([rates * clock, clock[None]]).ravel()


def encounters(initial: Array, end: float = END, distance: float = DISTANCE) -> Encounters:
    """Integrate trajectories (12, number) with DOP853 and measure their time below `distance`."""
    with needs("dynamics"):
        from scipy.integrate import DOP853

    number = initial.shape[1]
    state = np.concatenate([initial, np.zeros((1, number))])
    solver = DOP853(
        _regular_rates, 0.0, state.ravel(), np.inf, rtol=RTOL, atol=RTOL / 100, max_step=0.3
    )
    inside, gap, clock = np.zeros(number), least_distance(state) - distance, state[12]
    while clock.min() < end:
        solver.step()
        dense = solver.dense_output()
        for s in np.linspace(solver.t_old, solver.t, SAMPLES_PER_STEP + 1)[1:]:
            state = dense(s).reshape(13, -1)
            new_gap, new_clock = least_distance(state) - distance, np.minimum(state[12], end)
            inside += (new_clock - clock) * _share_below_zero(gap, new_gap)
            gap, clock = new_gap, new_clock
    drift = np.abs(energy(state) / energy(initial) - 1)
    return Encounters(inside / end, drift)


def _share_below_zero(first: Array, last: Array) -> Array:
    """Return the share of an interval on which a quantity goes linearly from `first` to `last`."""
    low, high = np.minimum(first, last), np.maximum(first, last)
    with np.errstate(invalid="ignore", divide="ignore"):
        crossing = -low / (high - low)
    return np.where(high <= 0, 1.0, np.where(low >= 0, 0.0, crossing))


def encounter_shares(trajectories: int, seed: int = 0) -> Encounters:
    """`encounters` of random trajectories, a hundred at a time."""
    check_whole("trajectories", trajectories, 1)
    check_whole("seed", seed, 0)
    rng = np.random.default_rng(seed)
    parts = [
        encounters(initial_states(min(TOGETHER, trajectories - start), rng))
        for start in range(0, trajectories, TOGETHER)
    ]
    return Encounters(*(np.concatenate(values) for values in zip(*parts, strict=True)))


def encounter_statistics(trajectories: int = 1000, seed: int = 0) -> EncounterSummary:
    """The share of trajectories with an encounter, and of the time within those, in per cent."""
    return summary(encounter_shares(trajectories, seed))


def summary(found: Encounters) -> EncounterSummary:
    """Means over trajectories with standard errors."""
    some = found.share > 0
    proportion = some.mean()
    within = found.share[some]
    return EncounterSummary(
        len(some),
        float(100 * proportion),
        float(100 * np.sqrt(proportion * (1 - proportion) / len(some))),
        float(100 * within.mean()),
        float(100 * within.std() / np.sqrt(len(within))),
        float(found.energy_drift.max()),
    )


def states_at(initial: Array, times: Array) -> Array:
    """One trajectory at the given times, (12, times), by DOP853 at rtol 1e-10."""
    with needs("dynamics"):
        from scipy.integrate import solve_ivp

    found = solve_ivp(
        lambda _, u: _rates(u[:, None])[0][:, 0],
        (times[0], times[-1]),
        initial,
        method="DOP853",
        t_eval=times,
        rtol=RTOL,
        atol=RTOL / 100,
    )
    return np.asarray(found.y)


def rhs(state: Tensor) -> Tensor:
    """The right-hand side in torch, for Jacobians."""
    position = state[:6].view(3, 2)
    separation = position.roll(-1, 0) - position
    pull = separation * separation.square().sum(1, keepdim=True) ** -1.5
    return torch.cat([state[6:], (pull - pull.roll(1, 0)).flatten()])
