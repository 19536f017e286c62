"""Does TNS follow accuracy? Rank correlations of several networks, with what speaks against them.

TNS grows with depth before any training, so a correlation is shown beside the same for depth, for
the number of parameters and for untrained networks of the same architectures, and with exact
p-values: of four networks, even a perfect order has Kendall p = 0.083.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from attnlab._errors import InputError
from attnlab._ranks import RankTest, rank_test
from attnlab.instruments.stiffness.result import StiffnessResult


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
        do = "does" if len(rivals) == 1 else "do"
        beside = f"; {' and '.join(rivals)} {do} as well" if rivals else ""
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
    if len({result.tokens for result in results}) > 1:
        found.append("Different tokens were counted: the numbers are not comparable.")
    if len({result.inputs for result in results}) > 1:
        found.append("The networks were measured on different numbers of inputs.")
    return found
