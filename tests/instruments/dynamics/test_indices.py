"""SI and SAI against closed forms of linear systems."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from attnlab import _errors
from attnlab.instruments.dynamics import (
    observed_stiffness_aware_index,
    stiffness_aware_index,
    stiffness_index,
    three_body,
)
from attnlab.instruments.dynamics.problems import PROBLEMS, solve
from attnlab.instruments.dynamics.theorem2 import (
    check_identity,
    closed_form,
    decay,
    rank_correlations,
    step_bias,
)


def test_si_of_a_linear_system_is_the_largest_real_part():
    matrix = torch.tensor([[-3.0, 50.0], [-50.0, -3.0]], dtype=torch.float64)
    states = torch.randn(4, 2, dtype=torch.float64)
    found = stiffness_index(lambda u: matrix @ u, states)
    torch.testing.assert_close(found, torch.full((4,), 3.0, dtype=torch.float64))


def test_si_of_a_nonlinear_system_by_hand():
    """u' = −u³: the Jacobian is −3u²."""
    states = torch.tensor([[1.0], [2.0]], dtype=torch.float64)
    found = stiffness_index(lambda u: -(u**3), states)
    torch.testing.assert_close(found, torch.tensor([3.0, 12.0], dtype=torch.float64))


@pytest.mark.parametrize("seed", range(5))
def test_sai_of_a_symmetric_system_is_the_closed_form(seed):
    torch.manual_seed(seed)
    vectors = torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64)).Q
    eigenvalues = -torch.logspace(-1, 3, 6, dtype=torch.float64)
    matrix = vectors @ torch.diag(eigenvalues) @ vectors.T
    state = torch.randn(6, dtype=torch.float64)
    found = stiffness_aware_index(lambda u: matrix @ u, state[None])
    # Written out: SAI² = Σ λ_i² α_i² with α the direction cosines in the eigenbasis.
    cosines = (vectors.T @ state) / state.norm()
    expected = (eigenvalues**2 * cosines**2).sum().sqrt()
    torch.testing.assert_close(found.squeeze(), expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(closed_form(eigenvalues, vectors.T @ state), expected)


def test_observed_sai_converges_to_the_instantaneous_one():
    times = torch.linspace(0, 1, 20001, dtype=torch.float64)
    states = torch.exp(-3 * times)[:, None] * torch.tensor([[1.0, 2.0]], dtype=torch.float64)
    found = observed_stiffness_aware_index(states, times)
    torch.testing.assert_close(found, torch.full_like(found, 3.0), rtol=1e-4, atol=0)


def test_a_step_of_one_over_si_is_off_by_37_per_cent():
    assert step_bias() == pytest.approx(-math.exp(-1))


def test_the_constant_dies_out():
    found = decay()
    assert found.ratio[0].item() == pytest.approx(math.sqrt(1 / 8), rel=1e-3)
    assert found.ratio[-1].item() < 1e-3


def test_theorem2_is_exact_for_symmetric_systems():
    assert check_identity(50).largest_relative_error < 1e-12


def test_observations_need_times():
    with pytest.raises(_errors.InputError) as error:
        observed_stiffness_aware_index(torch.rand(3, 2), torch.rand(2))
    assert str(error.value) == (
        "Expected one time per state and at least two but got 3 states and 2 times."
    )


def ranks_apart(rhs, times: np.ndarray, states: torch.Tensor) -> tuple[float, float, float]:
    """Pearson's correlation of the ranks of SI and of SAI at each state and between two, and the
    largest SI."""
    jacobians = [torch.autograd.functional.jacobian(rhs, state) for state in states]
    si = [float(torch.linalg.eigvals(each).real.abs().max()) for each in jacobians]
    sai = [float(rhs(state).norm() / state.norm()) for state in states]
    observed = [
        float(np.linalg.norm((after - before) / step) / np.linalg.norm(before))
        for before, after, step in zip(states[:-1], states[1:], np.diff(times), strict=True)
    ]

    def correlation(one: list[float], other: list[float]) -> float:
        return float(np.corrcoef(stats.rankdata(one), stats.rankdata(other))[0, 1])

    return correlation(si, sai), correlation(si[:-1], observed), max(si)


def test_rank_correlations_by_hand():
    """Along every problem, and the median over the trajectories of three bodies."""
    rows = rank_correlations(samples=25, bodies=3, seed=4)
    for row, problem in zip(rows, PROBLEMS.values(), strict=False):
        times, states = solve(problem, 25)
        expected = ranks_apart(problem.rhs, times.numpy(), states)
        assert row.problem == problem.name
        assert row[1:] == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert len(rows) == len(PROBLEMS) + 1
    times = np.linspace(0, three_body.END, 501)
    each = []
    for start in three_body.initial_states(3, np.random.default_rng(4)).T:
        states = torch.from_numpy(three_body.states_at(start, times).T.copy())
        each.append(ranks_apart(three_body.rhs, times, states))
    one, observed, largest = zip(*each, strict=True)
    assert rows[-1].problem == "three bodies (median of 3)"
    assert rows[-1][1:] == pytest.approx((np.median(one), np.median(observed), max(largest)))
