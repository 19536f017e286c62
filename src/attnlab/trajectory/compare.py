"""Does TNS follow accuracy? Rank correlations of several networks, with what speaks against them.

TNS grows with depth before any training, so a correlation is shown beside the same for depth, for
the number of parameters and for untrained networks of the same architectures, and with exact
p-values: of four networks, even a perfect order has Kendall p = 0.083.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from attnlab._errors import InputError
from attnlab.trajectory.result import StiffnessResult

ENUMERATE_UP_TO = 8
SAMPLES = 100_000


@dataclass(frozen=True)
class RankTest:
    """Rank correlation with accuracy; p-values are two-sided."""

    predictor: str
    kendall: float
    kendall_p: float
    spearman: float
    spearman_p: float
    exact: bool
    """Whether the p-values come from all permutations, or from 100,000 of them."""


@dataclass(frozen=True)
class ComparedNetwork:
    """One network of a comparison."""

    network: str
    accuracy: float
    tns: float
    untrained_tns: float | None
    depth: int
    parameters: int
    plan: str


@dataclass(frozen=True)
class Comparison:
    """Networks, and how TNS, depth and size rank with accuracy."""

    rows: tuple[ComparedNetwork, ...]
    tests: tuple[RankTest, ...]
    warnings: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """One honest line."""
        tns = self.tests[0]
        if math.isnan(tns.kendall):
            return "TNS or accuracy is the same for all networks: there is nothing to rank."
        if tns.kendall_p >= 0.05:
            return (
                f"Kendall τ = {tns.kendall:+.2f} with {len(self.rows)} networks, "
                f"p = {tns.kendall_p:.2g}: compatible with no relation."
            )
        rivals = [
            test.predictor
            for test in self.tests[1:]
            if not math.isnan(test.kendall) and abs(test.kendall) >= abs(tns.kendall)
        ]
        beside = f"; {' and '.join(rivals)} does as well" if rivals else ""
        return f"Kendall τ = {tns.kendall:+.2f}, p = {tns.kendall_p:.2g}{beside}."


def compare(
    results: Sequence[StiffnessResult],
    accuracy: Sequence[float],
    untrained: Sequence[StiffnessResult] | None = None,
) -> Comparison:
    """Rank the networks of `results` by TNS and by accuracy.

    `untrained` are measurements of the same architectures with fresh weights on the same data.
    """
    if len(accuracy) != len(results):
        raise InputError(
            f"Expected one accuracy per network but got {len(accuracy)} for {len(results)} of them."
        )
    if len(results) < 3:
        raise InputError(
            f"Expected at least 3 networks to rank but got {len(results)}: with two, every order "
            f"is a perfect correlation."
        )
    controls = [None] * len(results) if untrained is None else [u.tns for u in untrained]
    rows = tuple(
        ComparedNetwork(r.network, a, r.tns, c, r.depth, r.parameters, r.plan)
        for r, a, c in zip(results, accuracy, controls, strict=True)
    )
    predictors: list[tuple[str, list[float]]] = [
        ("TNS", [row.tns for row in rows]),
        ("depth", [float(row.depth) for row in rows]),
        ("parameters", [float(row.parameters) for row in rows]),
    ]
    if untrained is not None:
        predictors.append(("TNS untrained", [u.tns for u in untrained]))
    tests = tuple(rank_test(name, values, accuracy) for name, values in predictors)
    return Comparison(rows, tests, tuple(_warnings(results)))


def _warnings(results: Sequence[StiffnessResult]) -> list[str]:
    found = []
    plans = {result.plan for result in results}
    if len(plans) > 1:
        found.append(
            f"The stage plans differ ({'; '.join(sorted(plans))}). TNS depends on depth before any "
            f"training, so networks of different plans are not comparable."
        )
    if len({result.convention for result in results}) > 1:
        found.append("The NSI conventions differ: the numbers are not comparable.")
    if len({result.inputs for result in results}) > 1:
        found.append("The networks were measured on different numbers of inputs.")
    return found


def rank_test(predictor: str, values: Sequence[float], accuracy: Sequence[float]) -> RankTest:
    """Kendall's τ_b and Spearman's ρ of `values` with `accuracy`.

    p is the share of all orders of one variable whose |correlation| is at least as large: exact,
    ties included. Beyond eight networks 100,000 random orders stand in for all.
    """
    x, y = _ranks(values), _ranks(accuracy)
    signs_x, signs_y = _signs(x), _signs(y)
    scale_tau = math.sqrt((signs_x**2).sum() * (signs_y**2).sum())
    centred_x, centred_y = x - x.mean(), y - y.mean()
    scale_rho = math.sqrt((centred_x**2).sum() * (centred_y**2).sum())
    if scale_tau == 0:
        return RankTest(predictor, math.nan, math.nan, math.nan, math.nan, True)
    tau, rho = (signs_x * signs_y).sum() / scale_tau, (centred_x * centred_y).sum() / scale_rho
    exact = len(x) <= ENUMERATE_UP_TO
    orders = np.array(list(permutations(range(len(x))))) if exact else _random_orders(len(x))
    taus = np.array([(signs_x[np.ix_(o, o)] * signs_y).sum() for o in orders]) / scale_tau
    rhos = (centred_x[orders] * centred_y).sum(1) / scale_rho
    # Equal correlations can differ in the last bit.
    p_tau = float((np.abs(taus) >= abs(tau) - 1e-12).mean())
    p_rho = float((np.abs(rhos) >= abs(rho) - 1e-12).mean())
    return RankTest(predictor, float(tau), p_tau, float(rho), p_rho, exact)


def _ranks(values: Sequence[float]) -> np.ndarray:
    from scipy.stats import rankdata

    return np.asarray(rankdata(values))


def _signs(ranks: np.ndarray) -> np.ndarray:
    return np.asarray(np.sign(ranks[:, None] - ranks[None, :]))


def _random_orders(number: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.array([rng.permutation(number) for _ in range(SAMPLES)])
