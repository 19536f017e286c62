"""The e-process against integrals of the t likelihood, root finding, and simulated studies."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import integrate, optimize, stats

from attnlab._errors import AttnlabError, InputError
from attnlab.lab.statistics.anytime import (
    _log_moment,
    anytime_p_value,
    e_value,
    log_e_value,
    radius,
    seeds_for_interval,
    t_limit,
)
from attnlab.lab.statistics.paired import judge_differences, paired_difference
from attnlab.lab.statistics.power import seeds_needed

DIFFERENCES = [0.95, 0.72, 1.10, 0.25, 1.36, -0.31]
Floats = NDArray[np.float64]


def integrated_e_value(values: Floats, g: float) -> float:
    """The likelihood ratio of t, its noncentrality integrated over the effects' normal."""
    n = len(values)
    t = stats.ttest_1samp(values, 0.0).statistic

    def weighed(effect: float) -> float:
        likelihood = stats.nct.pdf(t, n - 1, effect * math.sqrt(n))
        return float(stats.norm.pdf(effect, scale=math.sqrt(g)) * likelihood)

    points = [0.0, float(t / math.sqrt(n))]
    mixed, _ = integrate.quad(weighed, -12, 12, points=points, epsabs=0, epsrel=1e-10, limit=400)
    return float(mixed / stats.t.pdf(t, n - 1))


@pytest.mark.parametrize("number", [2, 3, 6, 15])
@pytest.mark.parametrize("g", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("mean", [0.0, 0.7, -2.0])
def test_closed_form_is_the_integral_of_the_t_likelihood_ratio(
    number: int, g: float, mean: float
) -> None:
    values = np.random.default_rng(number).normal(mean, 1.0, number)
    assert e_value(values.tolist(), g) == pytest.approx(integrated_e_value(values, g), rel=1e-7)


def test_right_haar_prior_on_the_scale_gives_the_same() -> None:
    """From the raw likelihood: normal in the values, σ integrated with dσ/σ, δ with its normal."""
    values = np.array([0.4, 1.1, -0.2, 0.9])

    def of_scale(log_scale: float, variance: float) -> float:
        scale = math.exp(log_scale)
        covariance = scale**2 * (np.eye(4) + variance)
        return float(stats.multivariate_normal.pdf(values, np.zeros(4), covariance))

    effect, none = (
        integrate.quad(of_scale, -8, 8, args=(g,), epsabs=0, epsrel=1e-9, limit=200)[0]
        for g in (1.0, 0.0)
    )
    assert e_value(values.tolist(), 1.0) == pytest.approx(effect / none, rel=1e-8)


def test_the_moment_of_chi_is_that_of_rayleighs_and_one_at_zero() -> None:
    """Of two degrees of freedom E exp(z U) = 1 + z √(2π) exp(z² / 2) Φ(z)."""
    z = np.array([-3.0, -0.5, 0.0, 0.5, 4.0])
    wanted = np.log1p(z * math.sqrt(2 * math.pi) * np.exp(z**2 / 2) * stats.norm.cdf(z))
    np.testing.assert_allclose(_log_moment(z, 2), wanted, rtol=1e-9, atol=1e-9)
    for number in (2, 3, 10, 200):
        assert _log_moment(np.array(0.0), number) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("number", [2, 3, 5, 12, 40])
def test_without_an_effect_the_expected_e_value_is_one(number: int) -> None:
    def weighed(t: float) -> float:
        return float(math.exp(log_e_value(t, number)) * stats.t.pdf(t, number - 1))

    half = sum(
        integrate.quad(weighed, low, high, epsrel=1e-11, limit=500)[0]
        for low, high in ((0, 3), (3, 30), (30, 1e3), (1e3, math.inf))
    )
    assert 2 * half == pytest.approx(1.0, rel=1e-6)


def test_e_value_knows_no_order_unit_or_sign() -> None:
    whole = e_value(DIFFERENCES)
    assert e_value(sorted(DIFFERENCES)) == pytest.approx(whole, rel=1e-12)
    assert e_value([-1e4 * d for d in DIFFERENCES]) == pytest.approx(whole, rel=1e-12)


def test_one_difference_says_nothing_and_many_equal_ones_reach_the_largest_value() -> None:
    assert e_value([3.0]) == 1.0
    assert anytime_p_value([3.0]) == 1.0
    assert e_value([2.0] * 5) == pytest.approx(6.0**2)  # (1 + n g)^((n - 1)/2)
    assert anytime_p_value([0.0] * 5) == 1.0
    assert e_value([2.0] * 1000) == math.inf
    assert anytime_p_value([2.0] * 1000) == 0.0


def test_p_value_is_one_over_the_present_e_value_and_not_the_least_so_far() -> None:
    assert anytime_p_value(DIFFERENCES) == pytest.approx(1 / e_value(DIFFERENCES))
    gone = [1.0, 1.1, 0.9, 1.05, 1.0, -4.0]
    assert anytime_p_value(gone[:5]) < 0.05 < anytime_p_value(gone) <= 1


@pytest.mark.parametrize("level", [0.9, 0.95, 0.999])
@pytest.mark.parametrize("g", [0.5, 1.0])
@pytest.mark.parametrize("number", [12, 30])
def test_radius_is_where_the_e_value_of_the_moved_differences_is_one_over_alpha(
    number: int, g: float, level: float
) -> None:
    values = np.random.default_rng(number).normal(0.3, 2.0, number)

    def excess(distance: float) -> float:
        return math.log(e_value((values - values.mean() - distance).tolist(), g) * (1 - level))

    root = optimize.brentq(excess, 0.0, 1e3, xtol=1e-13, rtol=1e-13)
    assert radius(values.tolist(), level, g) == pytest.approx(root, rel=1e-9)


def test_radius_in_standard_deviations_and_where_it_is_infinite() -> None:
    shape = {n: radius(np.r_[np.ones(n // 2), -np.ones(n - n // 2)].tolist(), 0.95) for n in (4, 6)}
    assert shape[4] == math.inf
    assert shape[6] == pytest.approx(2.22 * math.sqrt(6 / 5), rel=3e-3)
    assert [t_limit(n, 0.95) for n in (1, 2, 3, 4)] == [math.inf] * 4
    in_spreads = [t_limit(n, 0.95) / math.sqrt(n) for n in (5, 6, 10, 20, 30)]
    assert in_spreads == pytest.approx([3.78, 2.22, 1.22, 0.77, 0.61], abs=0.006)


@given(st.floats(0.5, 0.9999), st.floats(0.05, 20))
@settings(deadline=None, max_examples=60)
def test_interval_needs_the_seeds_at_which_equal_differences_would_reach_the_limit(
    level: float, g: float
) -> None:
    """With no spread at all e_n is (1 + n g)^((n - 1)/2), its supremum."""

    def reaches(n: int) -> bool:
        return (n - 1) / 2 * math.log(1 + n * g) > -math.log(1 - level)

    found = seeds_for_interval(level, g)
    assert reaches(found)
    assert found == 2 or not reaches(found - 1)


def test_errors() -> None:
    for wrong, message in (
        (lambda: e_value([]), "Expected one or more finite differences but got []."),
        (
            lambda: anytime_p_value([1.0, math.nan]),
            "Expected one or more finite differences but got [1.0, nan].",
        ),
        (
            lambda: e_value([1.0, 2.0], 0.0),
            "Expected a variance g of the effect size above 0 but got 0.0.",
        ),
        (
            lambda: e_value([1.0], -1.0),
            "Expected a variance g of the effect size above 0 but got -1.0.",
        ),
        (
            lambda: radius([1.0, 2.0], 95),
            "Expected a level between 0 and 1, such as 0.95, but got 95.",
        ),
        (
            lambda: log_e_value(1.0, 1),
            "Expected whole numbers of differences, each at least 2, but got 1.",
        ),
    ):
        with pytest.raises(InputError) as error:
            wrong()
        assert str(error.value) == message


# Simulated studies: 20,000 of them, one look after every seed from 2 to 30.

LAST = 30


def paths(effect: float, number: int = 20_000, seed: int = 0) -> tuple[Floats, Floats]:
    """t statistics of the true mean and of zero after each seed from 2 on, one study per row."""
    values = np.random.default_rng(seed).normal(effect, 1.0, (number, LAST))
    n = np.arange(1, LAST + 1)
    mean = values.cumsum(1) / n
    squares = (values**2).cumsum(1) - n * mean**2
    error = np.sqrt(squares[:, 1:] / (n[1:] - 1) / n[1:])
    return (mean[:, 1:] - effect) / error, mean[:, 1:] / error


def anytime_limits(alpha: float = 0.05) -> Floats:
    return np.array([t_limit(n, 1 - alpha) for n in range(2, LAST + 1)])


def fixed_limits() -> Floats:
    return stats.t.isf(0.025, np.arange(1, LAST))


def test_no_effect_and_a_look_after_every_seed_gives_few_false_verdicts() -> None:
    _, t = paths(0.0)
    ever = (log_e_value(t, np.arange(2, LAST + 1)) >= math.log(20)).any(1).mean()
    assert 0.015 < ever < 0.03
    plain = (np.abs(t) > fixed_limits()).any(1).mean()
    assert plain == pytest.approx(0.29, abs=0.012)


def test_both_intervals_cover_as_claimed_under_their_own_rules() -> None:
    """The fixed one at one number of seeds; the other at all of them at once."""
    off, _ = paths(0.8)
    fixed = (np.abs(off) <= fixed_limits()).mean(0)
    assert fixed == pytest.approx(np.full(LAST - 1, 0.95), abs=0.007)
    at_once = (np.abs(off) < anytime_limits()).all(1).mean()
    assert 0.97 < at_once < 0.985
    # and the fixed one, looked at after every seed, does not
    assert (np.abs(off) <= fixed_limits()).all(1).mean() < 0.73


def test_simulated_rule_is_the_verdict_of_compare() -> None:
    """So that the shares above are shares of verdicts."""
    generator = np.random.default_rng(5)
    decided = 0
    for _ in range(150):
        number = int(generator.integers(2, 16))
        values = generator.normal(generator.choice([-1.5, 0.0, 0.8, 3.0]), 1.0, number)
        module = dict(enumerate(values + 70.0))
        difference = paired_difference(module, dict.fromkeys(module, 70.0))
        expected = "no difference shown" if number >= 5 else "cannot tell"
        if integrated_e_value(values, 1.0) >= 20:
            expected = "better" if values.mean() > 0 else "worse"
            decided += 1
        assert judge_differences({"se": difference}, sequential=True)["se"].verdict == expected
    assert 30 < decided < 120


def test_holm_over_rows_that_share_the_plain_network_keeps_the_error_of_the_family() -> None:
    """Four modules without effect, one plain network, a look at every number of seeds."""
    generator = np.random.default_rng(2)
    modules = generator.normal(size=(5_000, 4, LAST))
    differences = modules - generator.normal(size=(5_000, 1, LAST))
    n = np.arange(1, LAST + 1)
    mean = differences.cumsum(2) / n
    squares = (differences**2).cumsum(2) - n * mean**2
    t = (mean / np.sqrt(squares / np.maximum(n - 1, 1) / n + (n == 1)))[..., 1:]
    smallest = np.exp(-log_e_value(t, n[1:])).min(1)  # Holm's first step decides whether any falls
    assert (4 * smallest < 0.05).any(1).mean() < 0.05
    fixed = 2 * stats.t.sf(np.abs(t), n[1:] - 1)
    assert (4 * fixed.min(1) < 0.05).any(1).mean() > 0.2


def test_seeds_of_the_fixed_test_are_those_of_the_tables() -> None:
    """n of the paired t-test, two-sided 5 %, power 80 %, as power tables and G*Power have it."""
    sizes = {0.2: 199, 0.5: 34, 0.8: 15, 1.0: 10}
    assert {size: seeds_needed(size, 1.0) for size in sizes} == sizes
    assert seeds_needed(-0.25, 0.5) == 34
    assert seeds_needed(0.5, 1.0, power=0.95) == 54
    assert seeds_needed(0.1, 1.0, most=787) == 787
    assert seeds_needed(0.1, 1.0, most=786) is None
    assert seeds_needed(1e6, 1.0) == 2


@pytest.mark.parametrize("effect", [1.0, 2.0, 4.0])
def test_seeds_of_the_anytime_test_against_simulation(effect: float) -> None:
    """Exact for one look, an upper bound and not a loose one for a look after every seed."""
    _, t = paths(effect)
    beyond = np.abs(t) > anytime_limits()
    needed = seeds_needed(effect, 1.0, sequential=True)
    assert needed is not None
    now, ever = beyond.mean(0), np.maximum.accumulate(beyond, 1).mean(0)
    assert now[needed - 2] > 0.795
    assert now[needed - 3] < 0.805
    first = 2 + int(np.argmax(ever >= 0.8))
    assert 0.8 * needed <= first <= needed
    fixed = seeds_needed(effect, 1.0)
    assert fixed is not None
    assert needed > fixed


def test_shares_of_studies_that_are_decided_by_thirty_seeds() -> None:
    shares = {}
    for effect in (0.5, 1.0, 2.0, 4.0):
        _, t = paths(effect)
        shares[effect] = (np.abs(t) > anytime_limits()).any(1).mean()
    assert shares == pytest.approx({0.5: 0.41, 1.0: 0.98, 2.0: 1.0, 4.0: 1.0}, abs=0.012)


def test_more_rows_more_power_and_a_wider_level_need_more_seeds() -> None:
    one = seeds_needed(1.0, 1.0, sequential=True)
    assert one == 20
    for harder in ({"level": 1 - 0.05 / 8}, {"power": 0.95}):
        more = seeds_needed(1.0, 1.0, sequential=True, **harder)
        assert more is not None
        assert more > one


def test_errors_of_seeds_needed() -> None:
    for arguments, message in (
        (
            {"effect": 0.0, "spread": 1.0},
            "Expected an effect other than zero but got 0.0. No number of seeds shows that there "
            "is no effect.",
        ),
        (
            {"effect": 1.0, "spread": 0.0},
            "Expected a spread of the paired differences above zero but got 0.0. It takes two "
            "seeds with different differences to know one.",
        ),
        (
            {"effect": 1.0, "spread": 1.0, "power": 80},
            "Expected a power between 0 and 1 but got 80.",
        ),
        (
            {"effect": 1.0, "spread": 1.0, "level": 1.0},
            "Expected a level between 0 and 1, such as 0.95, but got 1.0.",
        ),
        (
            {"effect": 1.0, "spread": 1.0, "most": 1},
            "Expected most to be at least 2 but got 1.",
        ),
    ):
        with pytest.raises(AttnlabError) as error:
            seeds_needed(**arguments)
        assert str(error.value) == message
