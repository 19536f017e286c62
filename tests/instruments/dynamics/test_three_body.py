"""Three bodies against conserved quantities, an orbit in closed form, and a plain integration."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attnlab.instruments.dynamics import three_body


def test_the_unperturbed_ring_turns_for_ever():
    radius = 1.1
    angle = np.arange(3) * 2 * np.pi / 3
    position = radius * np.stack([np.cos(angle), np.sin(angle)], 1)
    speed = (np.sqrt(3) * radius) ** -0.5
    velocity = speed * np.stack([-np.sin(angle), np.cos(angle)], 1)
    initial = np.concatenate([position.ravel(), velocity.ravel()])
    times = np.linspace(0, 5, 11)
    states = three_body.states_at(initial, times)
    turned = angle[0] + speed / radius * times
    np.testing.assert_allclose(states[0], radius * np.cos(turned), atol=1e-7)
    np.testing.assert_allclose(states[1], radius * np.sin(turned), atol=1e-7)


def test_regular_time_and_plain_time_measure_the_same_encounters():
    initial = three_body.initial_states(6, np.random.default_rng(3))
    found = three_body.encounters(initial)
    times = np.linspace(0, three_body.END, 20001)
    for number, start in enumerate(initial.T):
        states = three_body.states_at(start, times)
        inside = (three_body.least_distance(states) < three_body.DISTANCE).mean()
        assert found.share[number] == pytest.approx(inside, abs=1.5e-3)
    assert found.energy_drift.max() < 1e-5


def test_statistics_fit_the_paper():
    """Three hundred trajectories: within three standard errors of 91.4 % and 4.2 %."""
    found = three_body.encounter_statistics(300, seed=1)
    assert abs(found.with_encounter - 91.4) < 3 * found.with_encounter_error
    assert abs(found.time - 4.2) < 3 * found.time_error
    assert found.largest_energy_drift < 1e-4


def test_both_right_hand_sides_agree():
    state = three_body.initial_states(1, np.random.default_rng(0))
    expected = three_body._rates(state)[0][:, 0]
    found = three_body.rhs(torch.from_numpy(state[:, 0].copy()))
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)
