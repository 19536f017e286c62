"""Two one-sided tests, against scipy's own one-sided tests and the interval law."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, stats

from attnlab._errors import InputError
from attnlab.lab.statistics import equivalence, judge
from attnlab.lab.statistics.anytime import (
    EFFECTS,
    log_e_above,
    p_value_above,
    seeds_for_margin,
    t_limit,
    t_limit_above,
)
from attnlab.results.table import Equivalence

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
        assert found.note == (
            "4 seeds: the interval that stays right when seeds are added needs at least 5"
        )
        return
    fixed = equivalence(module, other, 0.5)
    assert found.low < fixed.low < fixed.high < found.high
    within = found.low > -0.5 and found.high < 0.5
    assert (found.p_value < 0.05) == within == (judged.verdict == "equivalent")


# Simulated studies: 20,000 of them, one look after every seed from 2 to 30. The Monte-Carlo error
# of a share is at most 0.0036.

LAST = 30
STUDIES = 20_000


def looks(mean: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Means and their standard errors after each seed from 2 on; one study per row, spread 1."""
    values = np.random.default_rng(seed).normal(mean, 1.0, (STUDIES, LAST))
    n = np.arange(1, LAST + 1)
    means = values.cumsum(1) / n
    squares = (values**2).cumsum(1) - n * means**2
    return means[:, 1:], np.sqrt(squares[:, 1:] / (n[1:] - 1) / n[1:])


def called_equivalent(mean: float, margin: float, seed: int = 0) -> np.ndarray:
    """By the rule of the interval, which `test_after_a_look…` shows to be that of the verdict."""
    means, errors = looks(mean, seed)
    limits = np.array([t_limit_above(n, 0.95) for n in range(2, LAST + 1)])
    return np.abs(means) + limits * errors < margin


@pytest.mark.parametrize("margin", [0.5, 1.0, 2.0, 5.0])
def test_looking_after_every_seed_keeps_the_error_rate_at_the_edge(margin: float) -> None:
    """The true difference is the margin, the worst case; however small the spread is to it."""
    ever = called_equivalent(margin, margin, seed=1).any(1).mean()
    assert ever < 0.035
    # the fixed test, looked at as often, does not
    means, errors = looks(margin, seed=1)
    fixed = stats.t.isf(0.05, np.arange(1, LAST))
    if margin >= 2:
        assert (np.abs(means) + fixed * errors < margin).any(1).mean() > 0.15


@pytest.mark.parametrize(
    ("number", "power"), [(6, 0.518), (8, 0.58), (10, 0.577), (15, 0.531), (20, 0.523), (30, 0.521)]
)
def test_power_where_the_fixed_test_has_95_percent(number: int, power: float) -> None:
    """The two-sided anytime interval, which was used before, has 0.29 at ten seeds."""
    means, errors = looks(0.0)
    at = np.abs(means[:, number - 2]), errors[:, number - 2]
    margin = float(np.quantile(at[0] + stats.t.isf(0.05, number - 1) * at[1], 0.95))
    now = called_equivalent(0.0, margin)[:, : number - 1]
    assert now[:, -1].mean() == pytest.approx(power, abs=0.015)
    assert now.any(1).mean() > now[:, -1].mean()
    assert (at[0] + t_limit(number, 0.95) * at[1] < margin).mean() < 0.34


def test_one_sided_e_value_is_the_mean_of_likelihood_ratios_of_t() -> None:
    for number in (2, 3, 6, 15, 60):
        for t in (-3.0, -0.5, 0.0, 0.7, 3.0, 9.0):
            ratios = [
                share * stats.nct.pdf(t, number - 1, effect * math.sqrt(number))
                for effect, share in EFFECTS
            ]
            expected = math.log(sum(ratios) / stats.t.pdf(t, number - 1))
            assert float(log_e_above(t, number)) == pytest.approx(expected, rel=1e-7, abs=1e-9)
    assert sum(share for _, share in EFFECTS) == pytest.approx(1)


@pytest.mark.parametrize("number", [2, 3, 5, 12, 40])
def test_at_the_bound_the_expected_one_sided_e_value_is_one(number: int) -> None:
    def weighed(t: float) -> float:
        return float(np.exp(log_e_above(t, number)) * stats.t.pdf(t, number - 1))

    whole = sum(
        integrate.quad(weighed, low, high, epsrel=1e-10, limit=500)[0]
        for low, high in ((-math.inf, -30), (-30, 0), (0, 3), (3, 30), (30, 1e3), (1e3, math.inf))
    )
    assert whole == pytest.approx(1.0, rel=1e-6)


def test_one_sided_e_value_grows_with_t_and_its_limit_is_where_it_is_one_over_alpha() -> None:
    for number in (5, 7, 25, 2000):
        assert (np.diff(log_e_above(np.linspace(-20, 20, 200), number)) > 0).all()
        limit = t_limit_above(number, 0.95)
        assert float(log_e_above(limit, number)) == pytest.approx(math.log(20), rel=1e-9)
        assert stats.t.isf(0.05, number - 1) < limit
    assert [t_limit_above(n, 0.95) for n in (0, 1, 2, 3, 4)] == [math.inf] * 5
    assert seeds_for_margin(0.95) == 5
    assert p_value_above([1.0]) == p_value_above([-1.0, -1.1, -0.9]) == 1.0
    assert p_value_above([1.0] * 5) == pytest.approx(math.exp(-float(log_e_above(math.inf, 5))))


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


def with_p(p: float | None) -> Equivalence:
    """A row with this p-value, whose interval lies within its margin."""
    low, high = (None, None) if p is None else (-0.2, 0.2)
    return Equivalence("all", 0.5, 0.0, low, high, p, (0, 1, 2))


def test_rows_that_are_gone_and_families_with_a_share_of_the_error_rate() -> None:
    """By hand: Holm's step-down over all that were looked at, then divided by the share."""
    rows = {"a": with_p(0.01), "b": with_p(0.02), "c": with_p(None)}
    found = judge(rows, also={"a": with_p(0.015), "z": with_p(None)}, share=0.5)
    assert list(found) == ["a", "b", "c"]
    assert found["a"].adjusted_p == pytest.approx(min(1, 5 * 0.01 / 0.5))
    assert found["b"].adjusted_p == pytest.approx(min(1, max(5 * 0.01, 4 * 0.015, 3 * 0.02) / 0.5))
    assert (found["c"].adjusted_p, found["c"].verdict) == (None, "cannot tell")
    assert judge({"a": with_p(0.4)}, share=0.1)["a"].adjusted_p == 1.0
    for share, verdict in ((1.0, "equivalent"), (0.5, "not shown")):
        assert judge({"a": with_p(0.04)}, share=share)["a"].verdict == verdict
    assert judge({"a": with_p(0.25)}, 0.75)["a"].verdict == "not shown"  # not below
    assert judge({"a": with_p(0.04)}, 0.99)["a"].verdict == "not shown"


@pytest.mark.parametrize("level", [0.5, 1.0, 0.3])
def test_a_level_is_above_a_half(level: float) -> None:
    """Else the interval of level 1 − 2α, which must lie within the margin, is empty."""
    module, other = pair([0.1, 0.2, 0.0])
    with pytest.raises(InputError):
        equivalence(module, other, 1.0, level)
    with pytest.raises(InputError):
        judge({"a": with_p(0.01)}, level)
    assert equivalence(module, other, 1.0, 0.51).low is not None


@pytest.mark.parametrize("margin", [-0.5, math.inf, math.nan, True, "1"])
def test_a_margin_is_a_number(margin) -> None:
    with pytest.raises(InputError) as caught:
        equivalence({0: 1.0, 1: 2.0}, {0: 1.0, 1: 1.5}, margin)
    assert str(caught.value) == f"Expected a margin above zero but got {margin!r}."
