"""The ODE side."""

from __future__ import annotations

import numpy as np


def indices() -> object:
    from attnlab.instruments.dynamics import PROBLEMS, solve, stiffness_aware_index, stiffness_index

    found = {}
    for problem in PROBLEMS.values():
        states = solve(problem, 101).states
        found[problem.name] = {
            "states": states,
            "SI": stiffness_index(problem.rhs, states),
            "SAI": stiffness_aware_index(problem.rhs, states),
        }
    return found


def theorem2() -> object:
    from attnlab.instruments.dynamics.theorem2 import (
        check_identity,
        decay,
        rank_correlations,
        step_bias,
    )

    identity = check_identity(systems=20)
    return {
        "systems": identity.systems,
        "exact": identity.largest_relative_error < 1e-9,
        "decay": decay(11).ratio,
        "bias": step_bias(),
        "ranks": [list(row) for row in rank_correlations(samples=201, bodies=2)],
    }


def three_body() -> object:
    from attnlab.instruments.dynamics.three_body import energy, initial_states, least_distance

    states = initial_states(5, np.random.default_rng(0))
    return {"states": states, "energy": energy(states), "distance": least_distance(states)}


def encounters() -> object:
    from attnlab.instruments.dynamics.three_body import encounter_statistics

    found = encounter_statistics(6)
    names = ["trajectories", "with_encounter", "with_encounter_error", "time", "time_error"]
    return {name: getattr(found, name) for name in names}
