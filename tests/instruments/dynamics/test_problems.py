"""The stiff problems against published end points and conserved quantities."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from scipy.stats import spearmanr

from attnlab.instruments.dynamics import PROBLEMS, solve, stiffness_aware_index, stiffness_index


def test_hires_ends_at_the_published_reference():
    """Test set for IVP solvers, u(321.8122)."""
    expected = torch.tensor(
        [
            0.7371312573325668e-3,
            0.1442485726316185e-3,
            0.5888729740967575e-4,
            0.1175651343283149e-2,
            0.2386356198831331e-2,
            0.6238968252742796e-2,
            0.2849998395185769e-2,
            0.2850001604814231e-2,
        ],
        dtype=torch.float64,
    )
    torch.testing.assert_close(solve(PROBLEMS["hires"], 3).states[-1], expected, rtol=1e-6, atol=0)


def test_robertson_conserves_mass():
    solution = solve(PROBLEMS["robertson"], 50)
    total = solution.states.sum(1)
    torch.testing.assert_close(total, torch.ones_like(total), rtol=1e-10, atol=0)
    # Its Jacobian has columns that sum to zero, so zero is an eigenvalue and SI is at least 0.04.
    assert (stiffness_index(PROBLEMS["robertson"].rhs, solution.states) >= 0.04 - 1e-9).all()


@pytest.mark.parametrize("name", PROBLEMS)
def test_times_are_even_from_zero_to_the_end(name):
    problem = PROBLEMS[name]
    times = problem.times(6)
    assert (times[0], times[-1], len(times)) == (0, pytest.approx(problem.end), 6)
    steps = times[2:] / times[1:-1] if problem.log_times else times[1:] - times[:-1]
    assert steps == pytest.approx(steps[0])


def test_robertson_starts_at_time_zero():
    """The example of SUNDIALS' CVODE prints these digits for t = 0.4."""
    problem = dataclasses.replace(PROBLEMS["robertson"], end=0.4)
    solution = solve(problem, 3)
    assert solution.times[0] == 0
    assert solution.states[0].tolist() == list(problem.initial)
    expected = torch.tensor([9.8517e-01, 3.3864e-05, 1.4794e-02], dtype=torch.float64)
    torch.testing.assert_close(solution.states[-1], expected, rtol=5e-5, atol=0)


@pytest.mark.parametrize(("mu", "period"), [(1, 6.6633), (100, 162.84), (1000, 1614.3)])
def test_van_der_pol_is_solved_over_about_two_periods(mu, period):
    """The period of μ = 1 by its series, of large μ by two terms of the asymptotic one."""
    assert PROBLEMS[f"van_der_pol_{mu}"].end / period == pytest.approx(2, rel=0.06)


def test_van_der_pol_period():
    """For large μ the period is μ(3 − 2 ln 2) + 7.014 μ^(−1/3) + …; u(0) = 2 recurs."""
    mu = 100.0
    period = mu * (3 - 2 * math.log(2)) + 7.014 * mu ** (-1 / 3)
    problem = dataclasses.replace(PROBLEMS["van_der_pol_100"], end=1.02 * period)
    solution = solve(problem, 4001)
    falls = (solution.states[:-1, 0] > 0) & (solution.states[1:, 0] <= 0)
    rises = (solution.states[:-1, 0] < 0) & (solution.states[1:, 0] >= 0)
    half = solution.times[1:][rises].item() - solution.times[1:][falls].item()
    assert abs(2 * half / period - 1) < 0.01


def test_si_and_sai_are_ordered_oppositely_on_a_relaxation_oscillation():
    problem = PROBLEMS["van_der_pol_100"]
    states = solve(problem, 301).states
    index = stiffness_index(problem.rhs, states)
    aware = stiffness_aware_index(problem.rhs, states)
    assert spearmanr(index, aware).statistic < -0.9
