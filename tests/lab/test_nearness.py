"""Nearness of made-up trajectories whose distances are known."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats

from attnlab.instruments.trajectory.result import TrajectoryResult, TrajectoryStep
from attnlab.instruments.trajectory.similarity import inner_products, unit_products
from attnlab.lab.nearness import nearness
from attnlab.lab.pages.nearness import nearness_figure
from attnlab.page.plot import to_svg


def made(truth: torch.Tensor, noise: float, seed: int) -> TrajectoryResult:
    """Three states: `truth` with noise of its own."""
    draw = torch.Generator().manual_seed(seed)
    steps = []
    for label in ("1.0", "1.1", "1.2"):
        state = truth + noise * torch.randn(truth.shape, generator=draw)
        steps.append(
            TrajectoryStep(label, noise, tuple(unit_products(inner_products(state)).tolist()))
        )
    return TrajectoryResult(
        network="made", images=len(truth), images_checksum="same", steps=tuple(steps), seconds=0.0
    )


@pytest.fixture
def study() -> tuple[dict[str, dict[int, TrajectoryResult]], dict[str, dict[int, float]]]:
    truth = torch.randn(40, 20, generator=torch.Generator().manual_seed(0))
    noises = {"best": 0.2, "near": 0.2, "a": 0.5, "b": 0.8, "c": 1.2, "far": 2.0}
    trajectories = {
        row: {s: made(truth, noise, 100 * n + s) for s in range(5)}
        for n, (row, noise) in enumerate(noises.items())
    }
    values = {
        row: dict.fromkeys(range(5), 0.9 - 0.05 * noise - 0.01 * (row != "best"))
        for row, noise in noises.items()
    }
    return trajectories, values


def test_the_best_row_is_the_truth_and_its_seeds_are_the_floor(study) -> None:
    found = nearness(*study, higher_is_better=True)
    assert found is not None
    assert found.best == "best"
    rows = {row.label: row for row in found.rows}
    assert rows["best"].beyond is None
    floor = rows["best"].distance
    assert rows["far"].beyond is not None
    assert rows["far"].beyond.mean == pytest.approx(rows["far"].distance - floor)
    assert rows["far"].beyond.low > 0
    assert rows["near"].beyond.low < 0 < rows["near"].beyond.high  # as near as its own seeds
    assert [rows[r].distance for r in ("a", "b", "c", "far")] == sorted(
        rows[r].distance for r in ("a", "b", "c", "far")
    )


def by_angle(nsi: float, *angles: float) -> TrajectoryResult:
    """States whose CKA is the cosine of the angle between them; three images have three pairs."""
    steps = tuple(
        TrajectoryStep(f"1.{n}", nsi, (math.cos(angle), math.sin(angle), 0.0))
        for n, angle in enumerate(angles)
    )
    return TrajectoryResult(
        network="made", images=3, images_checksum="same", steps=steps, seconds=0.0
    )


def test_distances_by_hand() -> None:
    """Two steps and three seeds: every network against the best row's of the other two seeds."""
    third = math.pi / 3  # an angle whose cosine is one half
    best = {s: by_angle(n, a, 0.0) for s, n, a in ((0, 1, 0.0), (1, 2, third), (2, 4, 0.0))}
    other = {s: by_angle(n, 0.0, third) for s, n in ((0, 1), (1, 1), (2, 3))}
    values = {"best": dict.fromkeys(range(3), 0.9), "other": dict.fromkeys(range(3), 0.8)}
    found = nearness({"best": best, "other": other}, values, higher_is_better=True, level=0.9)
    assert found is not None
    assert (found.best, found.steps, found.tests) == ("best", ("1.0", "1.1"), ())
    truth, row = found.rows
    # After step 1.0, seed 0 of the best row is 1/2 from seed 1 and 0 from seed 2, and so on.
    assert truth.by_step == pytest.approx(((0.25 + 0.5 + 0.25) / 3, 0))
    assert row.by_step == pytest.approx(((0.25 + 0 + 0.25) / 3, 0.5))
    assert (truth.distance, row.distance) == pytest.approx((1 / 6, 1 / 3))
    assert truth.nsi_distance == pytest.approx((2 + 1.5 + 2.5) / 3)
    assert row.nsi_distance == pytest.approx((2 + 1.5 + 1.5) / 3)
    for difference, by_seed in (
        (row.beyond, (0.375 - 0.125, 0.25 - 0.25, 0.375 - 0.125)),
        (row.nsi_beyond, (2 - 2, 1.5 - 1.5, 1.5 - 2.5)),
    ):
        assert difference is not None
        assert difference.mean == pytest.approx(sum(by_seed) / 3)
        low, high = stats.ttest_1samp(by_seed, 0).confidence_interval(0.9)
        assert (difference.low, difference.high) == pytest.approx((low, high))
    assert (truth.beyond, truth.nsi_beyond) == (None, None)


def test_a_rank_test_needs_five_rows_beside_the_best(study) -> None:
    trajectories, values = study
    found = nearness(trajectories, values, higher_is_better=True)
    assert [each.predictor for each in found.tests] == [
        "1 − CKA to the best",
        "NSI's distance to the best",
    ]
    assert found.tests[1].kendall == pytest.approx(-1)
    del trajectories["a"]
    assert nearness(trajectories, values, higher_is_better=True).tests == ()


def test_the_best_row_needs_a_second_seed_and_others_without_are_left_out(study) -> None:
    trajectories, values = study
    near, best = trajectories["near"], trajectories["best"]
    found = nearness(trajectories | {"near": {0: near[0]}}, values, higher_is_better=True)
    assert [row.label for row in found.rows] == ["best", "a", "b", "c", "far"]
    assert nearness(trajectories | {"best": {0: best[0]}}, values, higher_is_better=True) is None


def test_nearness_ranks_with_the_result(study) -> None:
    found = nearness(*study, higher_is_better=True)
    assert found is not None
    test = found.tests[0]
    assert test.kendall == pytest.approx(-1)
    assert test.kendall_p == pytest.approx(2 / 120)


def test_a_lower_metric_has_another_best_row(study) -> None:
    found = nearness(*study, higher_is_better=False)
    assert found is not None
    assert found.best == "far"


def test_without_a_second_seed_there_is_no_floor(study) -> None:
    trajectories, values = study
    alone = {row: {0: seeds[0]} for row, seeds in trajectories.items()}
    assert nearness(alone, values, higher_is_better=True) is None


def test_networks_of_one_seed_are_not_compared(study) -> None:
    trajectories, values = study
    trajectories["near"] = dict(trajectories["best"])  # seed by seed the very same networks
    found = nearness(trajectories, values, higher_is_better=True)
    assert found is not None
    rows = {row.label: row for row in found.rows}
    assert rows["near"].distance == pytest.approx(rows["best"].distance)
    assert rows["near"].distance > 0.01


def test_the_figure_can_be_drawn(study) -> None:
    found = nearness(*study, higher_is_better=True)
    assert found is not None
    assert to_svg(nearness_figure(found)).count("best, its own seeds") >= 1
