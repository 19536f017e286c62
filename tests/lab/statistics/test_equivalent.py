"""Two one-sided tests, against scipy's own one-sided tests and the interval law."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from attnlab._errors import InputError
from attnlab.lab.statistics import equivalence, judge

GENERATOR = np.random.default_rng(0)


def pair(differences) -> tuple[dict[int, float], dict[int, float]]:
    base = GENERATOR.normal(90, 1, len(differences))
    other = {seed: float(value) for seed, value in enumerate(base)}
    return {seed: other[seed] + float(d) for seed, d in enumerate(differences)}, other


@pytest.mark.parametrize(("mean", "spread", "number"), [(0.1, 0.2, 5), (-0.4, 0.3, 8), (1, 0.2, 4)])
@pytest.mark.parametrize("margin", [0.3, 0.5])
def test_it_is_the_larger_of_two_one_sided_tests(mean, spread, number, margin) -> None:
    module, other = pair(GENERATOR.normal(mean, spread, number))
    found = equivalence(module, other, margin)
    differences = np.array([module[seed] - other[seed] for seed in module])
    above = stats.ttest_1samp(differences, -margin, alternative="greater").pvalue
    below = stats.ttest_1samp(differences, margin, alternative="less").pvalue
    assert found.p_value == pytest.approx(max(above, below), rel=1e-9)
    interval = stats.ttest_1samp(differences, 0).confidence_interval(0.90)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-9)
    within = -margin < interval.low and interval.high < margin
    assert (found.p_value < 0.05) == within


def test_a_worked_example() -> None:
    """Five differences from 0.1 to 0.5 and a margin of 0.6: t with 4 degrees, written out."""
    module, other = pair([0.1, 0.2, 0.3, 0.4, 0.5])
    found = equivalence(module, other, 0.6)
    error = math.sqrt(0.025) / math.sqrt(5)
    t = (0.3 - 0.6) / error
    assert found.mean == pytest.approx(0.3)
    assert found.p_value == pytest.approx(float(stats.t.cdf(t, 4)), rel=1e-6)


def test_error_rate_at_the_edge() -> None:
    """The true difference is the margin: called equivalent in at most five of a hundred."""
    wrong = 0
    for _ in range(400):
        module, other = pair(GENERATOR.normal(0.5, 0.3, 5))
        found = judge({"a": equivalence(module, other, 0.5)})["a"]
        wrong += found.verdict == "equivalent"
    assert wrong / 400 < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 400)


def test_a_missing_difference_is_not_equivalence() -> None:
    module, other = pair([-2.0, 2.5, 0.1])
    (found,) = judge({"a": equivalence(module, other, 0.5, to="all")}).values()
    assert found.verdict == "not shown"
    assert found.text == "not shown"
    module, other = pair([0.05, -0.03, 0.01, 0.02, -0.04])
    (found,) = judge({"a": equivalence(module, other, 0.5)}).values()
    assert found.text == "equivalent within ±0.5"


def test_holm_over_the_rows() -> None:
    family = {}
    for row in "abc":
        module, other = pair(GENERATOR.normal(0, 0.3, 5))
        family[row] = equivalence(module, other, 0.5)
    p = np.array([each.p_value for each in family.values()])
    order = np.argsort(p)
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (3 - rank) * p[index]))
        assert list(judge(family).values())[index].adjusted_p == pytest.approx(largest)


@pytest.mark.parametrize("number", [4, 6, 12])
def test_after_a_look_the_anytime_interval_decides(number) -> None:
    """Below α exactly when the interval that stays right lies within the margin."""
    module, other = pair(GENERATOR.normal(0.05, 0.2, number))
    found = equivalence(module, other, 0.5, sequential=True)
    (judged,) = judge({"a": found}).values()
    if number < 5:
        assert (found.low, judged.verdict) == (None, "cannot tell")
        return
    fixed = equivalence(module, other, 0.5)
    assert found.low < fixed.low < fixed.high < found.high
    within = found.low > -0.5 and found.high < 0.5
    assert (found.p_value < 0.05) == within == (judged.verdict == "equivalent")


def test_far_outside_is_no_equivalence_however_sure() -> None:
    module, other = pair(GENERATOR.normal(5, 0.1, 12))
    assert equivalence(module, other, 0.5, sequential=True).p_value == 1.0
    assert equivalence(module, other, 0.5).p_value > 0.99


@pytest.mark.parametrize(
    ("differences", "note"),
    [
        ([0.1], "one seed: no interval"),
        ([0.0, 0.0, 0.0], "the same difference for every seed: no spread to make an interval from"),
        ([0.1, math.nan], "seed 1 has no finite value (module nan, plain"),
    ],
)
def test_when_nothing_can_be_said(differences, note) -> None:
    module, other = pair(differences)
    (found,) = judge({"a": equivalence(module, other, 0.5)}).values()
    assert found.verdict == "cannot tell"
    assert found.note.startswith(note)
    module, other = pair([0.1, 0.2, 0.0])
    (found,) = judge({"a": equivalence(module, other, 5, cannot_tell="mixed data")}).values()
    assert (found.verdict, found.note) == ("cannot tell", "mixed data")


def test_a_margin_is_above_zero() -> None:
    with pytest.raises(InputError) as caught:
        equivalence({0: 1.0}, {0: 1.0}, 0)
    assert str(caught.value) == "Expected a margin above zero but got 0."
