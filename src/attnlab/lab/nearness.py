"""How near the networks of a study are to the best of them, step by step.

Huang et al. (ICCV 2023, Definition 3) explain attention by a ground-truth trajectory, which nobody
has; the best network stands in for it. Nearness only means something beyond what two seeds of the
best network are apart, so that distance is the floor. Networks of the same seed share their first
weights and the order of the images: they are never compared with one another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import fmean

from attnlab._ranks import RankTest, rank_test
from attnlab.instruments.trajectory.result import (
    TrajectoryResult,
    cka_distances,
    nsi_distances,
)
from attnlab.lab.statistics import paired_difference
from attnlab.results.table import PairedDifference

Trajectories = Mapping[int, TrajectoryResult]
"""Of the runs of one row, by seed."""
FEWEST_ROWS = 5
"""Rows beside the best that a rank correlation needs: of four, even a perfect order has p 0.083."""


@dataclass(frozen=True)
class RowNearness:
    """How far one row of a study is from the best row."""

    label: str
    value: float
    """The mean of its results."""
    by_step: tuple[float, ...]
    """1 − CKA with the best row's other seeds after every step, mean over pairs."""
    distance: float
    nsi_distance: float
    beyond: PairedDifference | None
    """The distance beyond the floor, by seed; None for the best row itself."""
    nsi_beyond: PairedDifference | None


@dataclass(frozen=True)
class Nearness:
    """Every row of a study against the best, which stands for the ground truth."""

    best: str
    steps: tuple[str, ...]
    rows: tuple[RowNearness, ...]
    tests: tuple[RankTest, ...]
    """Whether nearer rows have better results; empty with fewer than five rows beside the best."""


def nearness(
    trajectories: Mapping[str, Trajectories],
    values: Mapping[str, Mapping[int, float]],
    *,
    higher_is_better: bool,
    level: float = 0.95,
) -> Nearness | None:
    """Nearness of all rows that have trajectories of at least two seeds; None where the best row
    does not, because the floor is then unknown.

    Args:
        trajectories: by row and seed, all of the same images.
        values: the results by row and seed.
        higher_is_better: which row is the best.
        level: of the intervals.
    """
    rows = {label: found for label, found in trajectories.items() if len(found) > 1}
    if not rows:
        return None
    means = {label: fmean(values[label].values()) for label in trajectories if values.get(label)}
    best = (max if higher_is_better else min)(means, key=lambda label: means[label])
    if best not in rows:
        return None
    truth = rows[best]
    floors = [_by_seed(truth, truth, far) for far in (cka_distances, nsi_distances)]
    found = []
    for label, own in rows.items():
        states, lengths = (_by_seed(own, truth, far) for far in (cka_distances, nsi_distances))
        beyond, nsi_beyond = (
            None if label == best else paired_difference(_means(a), _means(b), level)
            for a, b in zip((states, lengths), floors, strict=True)
        )
        by_step = tuple(map(fmean, zip(*states.values(), strict=True)))
        distance, nsi_distance = (fmean(_means(each).values()) for each in (states, lengths))
        value = means[label]
        found.append(RowNearness(label, value, by_step, distance, nsi_distance, beyond, nsi_beyond))
    steps = next(iter(truth.values())).steps
    return Nearness(best, tuple(step.label for step in steps), tuple(found), _tests(found, best))


_Distances = Callable[[TrajectoryResult, TrajectoryResult], list[float]]


def _by_seed(own: Trajectories, truth: Trajectories, far: _Distances) -> dict[int, list[float]]:
    """The distance of every step to the best row's networks of all other seeds, mean over them."""
    return {
        seed: [
            fmean(each)
            for each in zip(*(far(mine, t) for s, t in truth.items() if s != seed), strict=True)
        ]
        for seed, mine in own.items()
    }


def _means(by_seed: Mapping[int, list[float]]) -> dict[int, float]:
    return {seed: fmean(steps) for seed, steps in by_seed.items()}


def _tests(rows: list[RowNearness], best: str) -> tuple[RankTest, ...]:
    others = [row for row in rows if row.label != best]
    if len(others) < FEWEST_ROWS:
        return ()
    results = [row.value for row in others]
    return (
        rank_test("1 − CKA to the best", [row.distance for row in others], results),
        rank_test("NSI's distance to the best", [row.nsi_distance for row in others], results),
    )
