"""Theorem 2 of the ICCV paper, and what becomes of it.

Claimed: SAI ≈ SI · sqrt(c + Q(SI)) with a constant c and Q → 0, so SAI follows SI. Found:

* For a linear symmetric system it is exact: SAI² = SI²(c + Q), c = cos²∠(u, v), v the eigenvector
  of SI, Q = Σ_{others} λ_i² α_i² / SI², α_i the components of u/‖u‖.
* But c belongs to the state, not to the system, and dies out with the fast component.
* A time step of 1/SI biases the observed SAI by 1/e − 1.
* Along solutions of classical stiff problems SI and SAI are ordered oppositely.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from attnlab._extras import needs
from attnlab.instruments.dynamics import three_body
from attnlab.instruments.dynamics.problems import (
    PROBLEMS,
    observed_stiffness_aware_index,
    solve,
    stiffness_aware_index,
    stiffness_index,
)


class ExactEquality(NamedTuple):
    """SAI of a linear symmetric system against the closed form, over random systems and states."""

    systems: int
    largest_relative_error: float


class Decay(NamedTuple):
    """SAI/SI along one solution of a linear system, at multiples of the time 1/SI."""

    times: Tensor
    ratio: Tensor


class RankCorrelation(NamedTuple):
    """Spearman's rank correlation of SI and SAI along a solution."""

    problem: str
    correlation: float
    """The correlation of SI with the instantaneous SAI."""
    observed: float
    """The correlation of SI with the SAI of observations at the sampled times."""
    largest_si: float


def closed_form(eigenvalues: Tensor, components: Tensor) -> Tensor:
    """SI · sqrt(c + Q) of a symmetric system, given a state's components in its eigenvectors."""
    weights = components.square() / components.square().sum()
    stiffest = eigenvalues.abs().argmax()
    index = eigenvalues.abs()[stiffest]
    others = torch.ones_like(eigenvalues, dtype=torch.bool)
    others[stiffest] = False
    rest = (eigenvalues.square() * weights)[others].sum() / index.square()
    return index * (weights[stiffest] + rest).sqrt()


def check_identity(systems: int = 200, seed: int = 0) -> ExactEquality:
    """Random symmetric negative definite systems of 2 to 20 unknowns, at random states."""
    generator = torch.Generator().manual_seed(seed)
    worst = 0.0
    for number in range(systems):
        size = 2 + number % 19
        noise = torch.randn(size, size, dtype=torch.float64, generator=generator)
        vectors = torch.linalg.qr(noise).Q
        exponents = 6 * torch.rand(size, dtype=torch.float64, generator=generator) - 2
        eigenvalues = -(10**exponents)
        matrix = vectors * eigenvalues @ vectors.T
        state = torch.randn(1, size, dtype=torch.float64, generator=generator)
        found = stiffness_aware_index(partial(torch.mv, matrix), state).squeeze()
        expected = closed_form(eigenvalues, state.squeeze(0) @ vectors)
        worst = max(worst, float((found / expected - 1).abs()))
    return ExactEquality(systems, worst)


# One fast and seven slow components of equal size: c = 1/8 at the start.
DECAY_EIGENVALUES = (-1000.0, *(-0.1 - 0.15 * k for k in range(7)))


def decay(number: int = 101) -> Decay:
    """SAI/SI from t = 0 to t = 10/SI of a linear system with one fast component of eight."""
    eigenvalues = torch.tensor(DECAY_EIGENVALUES, dtype=torch.float64)
    index = eigenvalues.abs().max()
    times = torch.linspace(0, 10, number, dtype=torch.float64) / index
    states = torch.exp(times[:, None] * eigenvalues)
    ratio = stiffness_aware_index(lambda u: eigenvalues * u, states) / index
    return Decay(times * index, ratio)


def step_bias() -> float:
    """Relative error of the SAI observed with a step of 1/SI on the fast component alone."""
    states = torch.tensor([[1.0], [math.exp(-1.0)]], dtype=torch.float64)
    times = torch.tensor([0.0, 1.0], dtype=torch.float64)
    return observed_stiffness_aware_index(states, times).item() - 1


def rank_correlations(
    samples: int = 2001, bodies: int = 20, seed: int = 0
) -> list[RankCorrelation]:
    """Spearman(SI, SAI) along the stiff problems, and over `bodies` three-body trajectories."""
    with needs("dynamics"):
        from scipy.stats import spearmanr

    rows = []
    for problem in PROBLEMS.values():
        times, states = solve(problem, samples)
        index = stiffness_index(problem.rhs, states)
        aware = stiffness_aware_index(problem.rhs, states)
        observed = observed_stiffness_aware_index(states, times)
        rows.append(
            RankCorrelation(
                problem.name,
                float(spearmanr(index, aware).statistic),
                float(spearmanr(index[:-1], observed).statistic),
                index.max().item(),
            )
        )
    return [*rows, _three_bodies(bodies, seed)]


def _three_bodies(bodies: int, seed: int) -> RankCorrelation:
    """The median over trajectories."""
    with needs("dynamics"):
        from scipy.stats import spearmanr

    times = np.linspace(0, three_body.END, 501)
    initial = three_body.initial_states(bodies, np.random.default_rng(seed))
    found, watched, largest = [], [], 0.0
    for start in initial.T:
        states = torch.from_numpy(three_body.states_at(start, times).T.copy())
        index = stiffness_index(three_body.rhs, states)
        aware = stiffness_aware_index(three_body.rhs, states)
        observed = observed_stiffness_aware_index(states, torch.from_numpy(times))
        found.append(spearmanr(index, aware).statistic)
        watched.append(spearmanr(index[:-1], observed).statistic)
        largest = max(largest, index.max().item())
    return RankCorrelation(
        f"three bodies (median of {bodies})",
        float(np.median(found)),
        float(np.median(watched)),
        largest,
    )
