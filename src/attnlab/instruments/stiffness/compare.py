"""Does TNS follow accuracy? Rank correlations of several networks, with what speaks against them.

TNS grows with depth before any training, so a correlation is shown beside the same for depth, for
the number of parameters and for untrained networks of the same architectures, and with exact
p-values: of four networks, even a perfect order has Kendall p = 0.083.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from attnlab._errors import InputError
from attnlab._ranks import RankTest, rank_test
from attnlab.instruments.stiffness.figures import comparison_figure
from attnlab.instruments.stiffness.measure import stiffness
from attnlab.instruments.stiffness.result import StiffnessResult
from attnlab.page.parts import Page
from attnlab.page.plot import Spec
from attnlab.page.tables import Cell, Table, number_cell
from attnlab.results.base import Result
from attnlab.subject import Subject


@dataclass(frozen=True)
class ComparedNetwork:
    """One network of a comparison."""

    network: str
    accuracy: float | None
    tns: float
    untrained_tns: float | None
    depth: int
    parameters: int
    plan: str


@dataclass(frozen=True)
class StiffnessComparison(Result):
    """Networks, and how TNS, depth and size rank with accuracy, where that is known."""

    FORMAT: ClassVar[str] = "attnlab stiffness-comparison 1"

    rows: tuple[ComparedNetwork, ...]
    tests: tuple[RankTest, ...]
    """Empty where no accuracies are known."""
    results: tuple[StiffnessResult, ...]

    @property
    def verdict(self) -> str:
        """Say in one sentence whether TNS and the accuracy go together, or whose steps are the most
        even."""
        if not self.tests:
            even = min(self.rows, key=lambda row: row.tns)
            return f"The steps of {even.network} are the most even, with a TNS of {even.tns:.4f}."
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

    def table(self) -> Table:
        """A row per network; and with accuracies, how each figure ranks with them."""
        rows = [
            [
                Cell(row.network),
                number_cell(row.accuracy, "{:.2f}"),
                number_cell(row.tns, "{:.4f}"),
                number_cell(row.untrained_tns, "{:.4f}"),
                number_cell(row.depth, "{}"),
                number_cell(row.parameters / 1e6, "{:.2f}"),
            ]
            for row in self.rows
        ]
        columns = ["network", "accuracy", "TNS", "untrained", "steps", "params M"]
        return Table(columns, rows, self._ranks())

    def figures(self) -> dict[str, Spec]:
        """TNS against accuracy, where accuracies are known."""
        return {"comparison": comparison_figure(self)} if self.tests else {}

    def page(self) -> Page:
        """The networks side by side."""
        from attnlab.instruments.stiffness.page import comparison_page

        return comparison_page(self.results)

    def _ranks(self) -> str:
        ranked = (
            f"{test.predictor}: Kendall τ {test.kendall:.2f} (p {test.kendall_p:.3f}), Spearman ρ "
            f"{test.spearman:.2f} (p {test.spearman_p:.3f})"
            for test in self.tests
        )
        exact = "exact" if all(test.exact for test in self.tests) else "from 100,000 random orders"
        with_accuracy = f"Rank correlation with accuracy, p {exact}, two-sided. "
        return with_accuracy + "; ".join(ranked) if self.tests else "TNS of every network"


def compare_networks(
    subjects: Sequence[Subject],
    results: Sequence[StiffnessResult],
    *,
    accuracy: tuple[float, ...] = (),
) -> StiffnessComparison:
    """Rank networks by TNS and, where it is given, by accuracy beside untrained controls.

    Args:
        subjects: the networks.
        results: their stiffness, in the same order.
        accuracy: of each network: ranks TNS, depth and size with it.
    """
    if not accuracy:
        return rank(results)
    controls = [_control(s, r) for s, r in zip(subjects, results, strict=True)]
    return rank(results, accuracy, controls)


def _control(subject: Subject, measured: StiffnessResult) -> StiffnessResult:
    return stiffness(
        subject.untrained(),
        convention=measured.convention,
        granularity=measured.granularity,
        tokens=measured.tokens,
    )


def rank(
    results: Sequence[StiffnessResult],
    accuracy: Sequence[float] = (),
    untrained: Sequence[StiffnessResult] | None = None,
) -> StiffnessComparison:
    """Rank the networks of `results` by TNS and by accuracy.

    `untrained` are measurements of the same architectures with fresh weights on the same data.
    """
    known: list[float | None] = [*accuracy] or [None] * len(results)
    if len(known) != len(results):
        raise InputError(
            f"Expected one accuracy per network but got {len(known)} for {len(results)} of them."
        )
    if accuracy and len(results) < 3:
        raise InputError(
            f"Expected at least 3 networks to rank but got {len(results)}: with two, every order "
            f"is a perfect correlation."
        )
    controls = [None] * len(results) if untrained is None else [u.tns for u in untrained]
    rows = tuple(
        ComparedNetwork(r.network, a, r.tns, c, r.depth, r.parameters, r.plan)
        for r, a, c in zip(results, known, controls, strict=True)
    )
    predictors: list[tuple[str, list[float]]] = [
        ("TNS", [row.tns for row in rows]),
        ("depth", [float(row.depth) for row in rows]),
        ("parameters", [float(row.parameters) for row in rows]),
    ]
    if untrained is not None:
        predictors.append(("TNS untrained", [u.tns for u in untrained]))
    tests = tuple(rank_test(n, values, accuracy) for n, values in predictors if accuracy)
    seconds = sum(result.seconds for result in results)
    notes = tuple(_warnings(results))
    return StiffnessComparison(rows, tests, tuple(results), seconds=seconds, notes=notes)


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
