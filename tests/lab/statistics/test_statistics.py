"""Against scipy's two-sample routine, closed forms, and the definition of Holm's procedure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from attnlab._errors import AttnlabError, InputError, UnknownNameError
from attnlab.lab.statistics.anytime import log_e_value, radius, t_limit
from attnlab.lab.statistics.equivalent import equivalence, judge
from attnlab.lab.statistics.paired import (
    Direction,
    PairedDifference,
    holm,
    judge_differences,
    paired_difference,
    summarize,
    unpaired_difference,
)
from attnlab.lab.statistics.power import seeds_needed

PLAIN = {0: 74.30, 1: 73.90, 2: 74.61, 3: 74.05, 4: 74.44}
MODULE = {0: 75.25, 1: 74.62, 2: 75.71, 3: 74.30, 4: 75.80}


def test_interval_and_p_value_are_those_of_the_paired_t_test() -> None:
    found = paired_difference(MODULE, PLAIN)
    reference = stats.ttest_rel([MODULE[s] for s in range(5)], [PLAIN[s] for s in range(5)])
    interval = reference.confidence_interval(0.95)
    assert found.low == pytest.approx(interval.low, rel=1e-12)
    assert found.high == pytest.approx(interval.high, rel=1e-12)
    assert found.p_value == pytest.approx(reference.pvalue, rel=1e-12)


def test_interval_of_two_seeds_has_the_closed_form_of_one_degree_of_freedom() -> None:
    # Student's t with one degree of freedom is Cauchy: the quantile is a tangent.
    found = paired_difference({0: 1.0, 1: 2.0}, {0: 0.0, 1: 0.5})
    half = math.tan(math.pi * (0.975 - 0.5)) * np.std([1.0, 1.5], ddof=1) / math.sqrt(2)
    assert found.low == pytest.approx(1.25 - half, rel=1e-9)
    assert found.high == pytest.approx(1.25 + half, rel=1e-9)


def test_interval_of_known_sigma_zero_mean_covers_as_claimed() -> None:
    generator = np.random.default_rng(0)
    covered = 0
    for _ in range(2000):
        values = dict(enumerate(generator.normal(0.3, 1.0, 5)))
        found = paired_difference(values, dict.fromkeys(values, 0.0))
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 0.3 <= found.high
    assert stats.binomtest(covered, 2000, 0.95).pvalue > 1e-3


def test_only_seeds_of_both_count() -> None:
    found = paired_difference(MODULE | {9: 0.0}, PLAIN | {7: 100.0})
    assert found.seeds == (0, 1, 2, 3, 4)
    assert found.mean == pytest.approx(np.mean([MODULE[s] - PLAIN[s] for s in range(5)]))


def of(values: list[float], cannot_tell: str = "") -> PairedDifference:
    """The paired difference of a module that is `values` above its plain network."""
    plain = dict.fromkeys(range(len(values)), 0.0)
    return paired_difference(dict(enumerate(values)), plain, cannot_tell=cannot_tell)


def test_anytime_figures_are_those_of_the_closed_form() -> None:
    found = paired_difference(MODULE, PLAIN)
    t = stats.ttest_rel([MODULE[s] for s in range(5)], [PLAIN[s] for s in range(5)]).statistic
    e = 6**-0.5 * ((1 + t**2 / 4) / (1 + t**2 / 24)) ** 2.5
    assert found.anytime_p == pytest.approx(1 / e, rel=1e-12)
    assert found.anytime_p is not None
    assert found.p_value is not None
    assert found.anytime_p > found.p_value
    differences = [MODULE[s] - PLAIN[s] for s in range(5)]
    assert found.std == pytest.approx(np.std(differences, ddof=1))
    assert found.std is not None
    a = (6**0.5 * 20) ** (2 / 5)
    half = math.sqrt(4 * (a - 1) / (1 - a / 6) / 5) * found.std
    assert found.anytime_low == pytest.approx(found.mean - half, rel=1e-12)
    assert found.anytime_high == pytest.approx(found.mean + half, rel=1e-12)
    assert found.anytime_note == ""


def test_few_seeds_have_no_anytime_interval_and_it_says_how_many_they_need() -> None:
    found = of([1.0, 1.1, 0.9, 1.05])
    assert found.p_value is not None
    assert found.p_value < 0.001
    assert (found.anytime_low, found.anytime_high) == (None, None)
    assert found.anytime_note == (
        "4 seeds: the interval that stays right when seeds are added needs at least 5"
    )
    fixed, anytime = (
        judge_differences({"se": found}),
        judge_differences({"se": found}, sequential=True),
    )
    assert (fixed["se"].verdict, fixed["se"].note) == ("better", "")
    assert (anytime["se"].verdict, anytime["se"].note) == ("cannot tell", found.anytime_note)
    wider = paired_difference(
        dict(enumerate([1.0, 1.1, 2, 3, 4, 5])), dict.fromkeys(range(6), 0.0), 0.999
    )
    assert wider.anytime_note == (
        "6 seeds: the interval that stays right when seeds are added needs at least 8"
    )


def test_one_seed_has_no_interval_and_says_so() -> None:
    found = paired_difference({0: 75.0}, {0: 74.0})
    assert (found.mean, found.low, found.high, found.p_value) == (1.0, None, None, None)
    assert (found.anytime_low, found.anytime_high, found.anytime_p) == (None, None, None)
    assert found.note == found.anytime_note == "one seed: no interval"
    assert judge_differences({"se": found})["se"].verdict == "cannot tell"


def test_equal_differences_are_not_taken_for_certainty() -> None:
    found = paired_difference({0: 90.1, 1: 60.3, 2: 0.7}, {0: 90.0, 1: 60.2, 2: 0.6})
    assert 90.1 - 90.0 != 0.7 - 0.6  # but for rounding they are equal
    assert found.low is None
    assert found.anytime_p is None
    assert found.note == "the same difference for every seed: no spread to make an interval from"
    for sequential in (False, True):
        compared = judge_differences({"se": found}, sequential=sequential)["se"]
        assert (compared.verdict, compared.note) == ("cannot tell", found.note)
    many = of([0.1] * 12)
    assert judge_differences({"se": many}, sequential=True)["se"].verdict == "cannot tell"


def test_small_values_have_an_interval_like_large_ones() -> None:
    """What counts as equal is relative to the values, for losses of 1e-12 too."""
    large = of([0.5, 0.6, 0.55])
    small = of([0.5e-12, 0.6e-12, 0.55e-12])
    assert small.low == pytest.approx(1e-12 * large.low, rel=1e-9, abs=0)
    assert small.p_value == pytest.approx(large.p_value)
    unpaired = unpaired_difference([0.5e-12, 0.6e-12, 0.7e-12], [0.3e-12, 0.1e-12, 0.2e-12])
    assert unpaired.low is not None


def test_runs_without_common_seeds_have_welchs_interval() -> None:
    """By Welch's formula written out."""
    a, b = np.array([75.25, 74.62, 75.71, 74.30]), np.array([74.30, 73.90, 74.61, 74.1, 73.8])
    found = unpaired_difference(a.tolist(), b.tolist())
    parts = [each.var(ddof=1) / len(each) for each in (a, b)]
    freedom = sum(parts) ** 2 / sum(p**2 / (len(e) - 1) for p, e in zip(parts, (a, b), strict=True))
    mean, error = a.mean() - b.mean(), math.sqrt(sum(parts))
    assert found.mean == pytest.approx(mean)
    half = stats.t.ppf(0.975, freedom) * error
    assert (found.low, found.high) == (pytest.approx(mean - half), pytest.approx(mean + half))
    assert found.p_value == pytest.approx(2 * stats.t.sf(mean / error, freedom))
    assert (found.seeds, found.anytime_low, found.anytime_p) == ((), None, None)


FEW = (
    "Welch's interval is right from 3 runs on if both have as many, from 4 on if one has at most "
    "twice as many, else from 5 on"
)


def worst_coverage_of_welch(one: int, other: int) -> float:
    """The least share of 40,000 simulated intervals that hold the truth, over ratios of spreads;
    the Monte-Carlo error of one is 0.0011."""
    generator = np.random.default_rng(1000 * one + other)
    shares = []
    for ratio in (0.1, 0.2, 1 / 3, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 5.0, 10.0):
        a = generator.normal(0.0, ratio, (40_000, one))
        b = generator.normal(0.0, 1.0, (40_000, other))
        test = stats.ttest_ind(a, b, axis=1, equal_var=False)
        shares.append(float((test.pvalue >= 0.05).mean()))  # zero is inside the interval
    return min(shares)


@pytest.mark.parametrize(
    ("one", "other"),
    [(3, 3), (4, 4), (4, 5), (4, 8), (5, 5), (5, 6), (5, 11), (5, 30), (5, 100), (8, 30)],
)
def test_welch_covers_where_it_is_offered(one: int, other: int) -> None:
    draw = np.random.default_rng(0).normal(size=(2, 100))
    assert unpaired_difference(draw[0, :one].tolist(), draw[1, :other].tolist()).low is not None
    assert worst_coverage_of_welch(one, other) > 0.94 - 3 * 0.0011


@pytest.mark.parametrize(("one", "other"), [(2, 2), (2, 10), (3, 4), (3, 10), (4, 9), (4, 30)])
def test_welch_is_not_offered_where_it_does_not_cover(one: int, other: int) -> None:
    draw = np.random.default_rng(0).normal(size=(2, 100))
    for sizes in ((one, other), (other, one)):
        values = [each[:size].tolist() for each, size in zip(draw, sizes, strict=True)]
        found = unpaired_difference(*values)
        assert found.low is None
        compared = judge_differences({"m": found})["m"]
        assert (compared.verdict, compared.note) == ("cannot tell", found.note)
    assert worst_coverage_of_welch(one, other) < 0.942


def test_two_runs_far_above_ten_are_no_verdict() -> None:
    """It was "better, p = 0.000", where such intervals are wrong in one of ten."""
    plain = np.random.default_rng(0).normal(69.96, 0.33, 10).tolist()
    found = judge_differences({"new": unpaired_difference([71.00, 71.02], plain)})["new"]
    assert found.verdict == "cannot tell"
    assert found.note == f"2 and 10 runs without shared seeds: {FEW}"


@pytest.mark.parametrize(
    ("module", "plain", "mean", "note"),
    [
        ([75.0], [74.0, 73.0], 1.5, f"1 and 2 runs without shared seeds: {FEW}"),
        ([75.0, 76.0], [74.0], 1.5, f"2 and 1 runs without shared seeds: {FEW}"),
        ([75.0, 76.0], [74.0, 74.5], 1.25, f"2 and 2 runs without shared seeds: {FEW}"),
        ([75.0, 76.0, 77.0], [74.0] * 4, 2.0, f"3 and 4 runs without shared seeds: {FEW}"),
        (
            [75.0] * 3,
            [74.0] * 3,
            1.0,
            "the same value in every run: no spread to make an interval from",
        ),
        ([75.0, math.inf], [74.0, 74.5], math.nan, "a run has no finite value"),
        ([75.0, 74.0], [math.nan, 74.5], math.nan, "a run has no finite value"),
    ],
)
def test_runs_that_give_no_interval(
    module: list[float], plain: list[float], mean: float, note: str
) -> None:
    found = unpaired_difference(module, plain)
    assert found.mean == pytest.approx(mean, nan_ok=True)
    assert (found.low, found.high, found.p_value, found.note) == (None, None, None, note)


@pytest.mark.parametrize(("module", "plain"), [([], [1.0, 2.0]), ([1.0, 2.0], [])])
def test_no_run_is_an_error(module: list[float], plain: list[float]) -> None:
    with pytest.raises(InputError) as error:
        unpaired_difference(module, plain)
    assert str(error.value) == (
        "Expected at least one value of the module and of the plain network."
    )


def test_no_common_seed_is_an_error() -> None:
    with pytest.raises(InputError) as error:
        paired_difference({0: 1.0}, {1: 1.0})
    assert str(error.value) == (
        "Expected runs with the same seeds but got [0] for the module and [1] for the plain "
        "network."
    )


def test_summary_has_the_sample_standard_deviation() -> None:
    found = summarize([1.0, 2.0, 4.0])
    assert found.std == pytest.approx(math.sqrt(7 / 3))
    assert str(found) == "2.33 ± 1.53"
    assert str(summarize([2.0])) == "2.00"


probabilities = st.lists(st.floats(0, 1), min_size=1, max_size=6)


@given(probabilities)
@settings(deadline=None)
def test_holm_is_closed_testing_with_bonferroni(p_values: list[float]) -> None:
    """A hypothesis is rejected when every intersection that holds it is, by Bonferroni."""
    number = range(len(p_values))
    for index, adjusted in enumerate(holm(p_values)):
        families = (
            family
            for size in range(1, len(p_values) + 1)
            for family in itertools.combinations(number, size)
            if index in family
        )
        expected = max(min(1.0, len(f) * min(p_values[i] for i in f)) for f in families)
        assert adjusted == pytest.approx(expected, abs=1e-15)


def test_a_module_that_is_better_alone_is_not_called_better_in_a_crowd() -> None:
    plain = dict.fromkeys(range(5), 0.0)
    one = paired_difference(dict(enumerate([0.1, 0.9, 0.5, 0.6, 0.3])), plain)
    assert one.p_value is not None
    assert 0.05 / 8 < one.p_value < 0.05
    noise = paired_difference(dict(enumerate([-1.0, 1.1, 0.3, -0.6, 0.1])), plain)
    assert judge_differences({"se": one})["se"].verdict == "better"
    crowd = {"se": one} | {f"other{i}": noise for i in range(7)}
    assert judge_differences(crowd)["se"].verdict == "no difference shown"
    assert judge_differences(crowd)["se"].adjusted_p == pytest.approx(8 * one.p_value)


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=6))
@settings(deadline=None)
def test_nothing_is_called_better_or_worse_when_its_interval_contains_zero(
    values: list[float],
) -> None:
    found = judge_differences(
        {"m": paired_difference(dict(enumerate(values)), dict.fromkeys(range(len(values)), 0.0))}
    )["m"]
    if found.verdict in ("better", "worse"):
        low, high = found.difference.low, found.difference.high
        assert low is not None
        assert high is not None
        assert low > 0 or high < 0
        assert (found.verdict == "better") == (low > 0)


def test_worse_is_said_too() -> None:
    worse = paired_difference(PLAIN, MODULE)
    assert judge_differences({"m": worse})["m"].verdict == "worse"


def test_the_verdict_is_by_the_kind_that_was_asked_for() -> None:
    """Significant by the t-test of six seeds, and not for one who looked after each."""
    found = of([0.1, 0.9, 0.5, 0.6, 0.3, 0.2])
    fixed, anytime = (
        judge_differences({"m": found})["m"],
        judge_differences({"m": found}, sequential=True)["m"],
    )
    assert (fixed.verdict, anytime.verdict) == ("better", "no difference shown")
    assert (fixed.sequential, anytime.sequential) == (False, True)
    assert (fixed.low, fixed.high, fixed.p_value) == (found.low, found.high, found.p_value)
    assert (anytime.low, anytime.high) == (found.anytime_low, found.anytime_high)
    assert anytime.p_value == anytime.adjusted_p == found.anytime_p
    clear = of([0.5, 0.6, 0.55, 0.5, 0.6, 0.52])
    assert judge_differences({"m": clear}, sequential=True)["m"].verdict == "better"
    assert judge_differences({"m": clear, "n": found}, sequential=True)[
        "m"
    ].adjusted_p == pytest.approx(2 * (clear.anytime_p or 0))


@pytest.mark.parametrize("sequential", [False, True])
@pytest.mark.parametrize(
    ("better", "up", "down"), [("higher", "better", "worse"), ("lower", "worse", "better")]
)
def test_the_verdict_follows_the_direction_of_the_metric(
    sequential: bool, better: Direction, up: str, down: str
) -> None:
    above = [0.5, 0.6, 0.55, 0.5, 0.6, 0.52]
    family = {"up": of(above), "down": of([-value for value in above])}
    found = judge_differences(family, sequential=sequential, better=better)
    assert (found["up"].verdict, found["down"].verdict) == (up, down)


def test_a_direction_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(UnknownNameError) as error:
        judge_differences({}, better="highest")  # type: ignore[arg-type]
    assert str(error.value) == (
        "Unknown direction 'highest'. Did you mean 'higher'? Expected one of: higher, lower."
    )


@pytest.mark.parametrize("sequential", [False, True])
def test_rows_that_were_dropped_count_in_the_family_and_get_no_row(sequential: bool) -> None:
    one = of([0.5, 0.6, 0.55, 0.5, 0.6, 0.52])
    noise = of([-1.0, 1.1, 0.3, -0.6, 0.1, 0.2])
    kept = judge_differences(
        {"se": one}, sequential=sequential, also={"se": noise, "eca": noise, "alone": of([1.0])}
    )
    assert list(kept) == ["se"]
    assert kept["se"].adjusted_p == pytest.approx(4 * (kept["se"].p_value or 0))
    whole = judge_differences(
        {"se": one, "before": noise, "eca": noise, "alone": of([1.0])}, sequential=sequential
    )
    assert kept["se"] == whole["se"]


def with_p(p: float | None) -> PairedDifference:
    """A gain with this p-value, whose interval is above zero."""
    low, high = (None, None) if p is None else (0.1, 0.9)
    return PairedDifference(0.5, low, high, p, (0, 1, 2))


def test_a_family_with_a_share_of_the_error_rate() -> None:
    """By hand: Holm's step-down, then divided by the share; what has no p-value counts as 1."""
    found = judge_differences({"a": with_p(0.01), "b": with_p(0.02), "c": with_p(None)}, share=0.5)
    assert found["a"].adjusted_p == pytest.approx(3 * 0.01 / 0.5)
    assert found["b"].adjusted_p == pytest.approx(2 * 0.02 / 0.5)
    assert (found["c"].adjusted_p, found["c"].verdict) == (None, "cannot tell")
    assert judge_differences({"a": with_p(0.4)}, share=0.1)["a"].adjusted_p == 1.0
    for share, verdict in ((1.0, "better"), (0.5, "no difference shown")):
        assert judge_differences({"a": with_p(0.04)}, share=share)["a"].verdict == verdict
    assert judge_differences({"a": with_p(0.25)}, 0.75)["a"].verdict == "no difference shown"
    assert judge_differences({"a": with_p(0.2)}, 0.75)["a"].verdict == "better"


@pytest.mark.parametrize(("low", "high"), [(0.0, 0.9), (-0.9, 0.0), (-0.1, 0.9)])
def test_an_interval_that_touches_zero_shows_no_difference(low: float, high: float) -> None:
    found = PairedDifference((low + high) / 2, low, high, 0.01, (0, 1, 2))
    assert judge_differences({"a": found})["a"].verdict == "no difference shown"


def test_dropping_and_adding_no_longer_makes_a_module_better() -> None:
    """SE is not shown among its four rows; without three of them it would be."""
    one = of([0.1, 0.9, 0.5, 0.6, 0.3])
    noise = of([-1.0, 1.1, 0.3, -0.6, 0.1])
    rest = dict.fromkeys(("eca", "srm", "spa"), noise)
    assert judge_differences({"se": one})["se"].verdict == "better"
    assert judge_differences({"se": one}, also=rest)["se"].verdict == "no difference shown"


def test_a_reason_not_to_tell_beats_every_figure_and_makes_no_other_row_easier() -> None:
    clear = [0.5, 0.6, 0.55, 0.5, 0.6, 0.52]
    mixed = of(clear, cannot_tell="runs of different data")
    assert mixed.low is not None
    for sequential in (False, True):
        found = judge_differences({"se": of(clear), "eca": mixed}, sequential=sequential)
        assert found["eca"].verdict == "cannot tell"
        assert found["eca"].note == "runs of different data"
        assert found["eca"].adjusted_p is None
        assert found["se"].adjusted_p == pytest.approx(2 * (found["se"].p_value or 0))


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_a_run_that_diverged_is_not_left_out(wrong: float) -> None:
    values = dict(enumerate([0.5, 0.6, 0.55, 0.5, 0.6, 0.52]))
    found = paired_difference(values | {2: wrong}, dict.fromkeys(values, 0.0))
    assert math.isnan(found.mean)
    assert found.cannot_tell == f"seed 2 has no finite value (module {wrong}, plain 0.0)"
    for sequential in (False, True):
        compared = judge_differences({"m": found}, sequential=sequential)["m"]
        assert (compared.verdict, compared.note) == ("cannot tell", found.cannot_tell)
    # A seed that only one of them has does not matter.
    assert paired_difference(values | {9: wrong}, dict.fromkeys(values, 0.0)).low is not None


CLEAR = [0.5, 0.6, 0.55, 0.5, 0.6, 0.52]
LEVELS = (math.nan, math.inf, 0, 0.0, 1, 1.0, -0.95, 95, True, "0.95", None)


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_is_between_zero_and_one(level: float) -> None:
    """At a level of nan or 0 a difference was "better"."""
    values = dict(enumerate(CLEAR))
    plain = dict.fromkeys(values, 0.0)
    difference = paired_difference(values, plain)
    for wrong in (
        lambda: paired_difference(values, plain, level),
        lambda: unpaired_difference(CLEAR, CLEAR, level),
        lambda: judge_differences({"m": difference}, level),
        lambda: seeds_needed(1.0, 1.0, level),
        lambda: radius(CLEAR, level),
        lambda: equivalence(values, plain, 0.5, level),
        lambda: judge({}, level),
    ):
        with pytest.raises(InputError) as error:
            wrong()
        assert str(error.value).startswith("Expected a level between 0")
        assert str(error.value).endswith(f"such as 0.95, but got {level!r}.")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            lambda: equivalence({0: 1.0, 1: 2.0}, {0: 1.0, 1: 1.0}, 0.5, 0.4),
            "Expected a level between 0.5 and 1, such as 0.95, but got 0.4.",
        ),
        (
            lambda: judge({}, 0.5),
            "Expected a level between 0.5 and 1, such as 0.95, but got 0.5.",
        ),
        (
            lambda: equivalence({0: 1.0}, {0: 1.0}, True),
            "Expected a margin above zero but got True.",
        ),
        (
            lambda: equivalence({0: 1.0}, {0: 1.0}, math.nan),
            "Expected a margin above zero but got nan.",
        ),
        (
            lambda: seeds_needed(1.0, 1.0, most=10.5),  # type: ignore[arg-type]
            "Expected most to be a whole number but got 10.5.",
        ),
        (
            lambda: seeds_needed(1.0, math.nan),
            "Expected a spread of the paired differences above zero but got nan. It takes two "
            "seeds with different differences to know one.",
        ),
        (
            lambda: t_limit(2.5, 0.95),  # type: ignore[arg-type]
            "Expected the number of differences to be a whole number but got 2.5.",
        ),
        (
            lambda: log_e_value([1.0, 2.0], 3.5),
            "Expected whole numbers of differences, each at least 2, but got 3.5.",
        ),
        (
            lambda: log_e_value([1.0, 2.0], [3, 4, 5]),
            "Expected as many t statistics as numbers of differences but got 2 and 3.",
        ),
        (
            lambda: log_e_value([1.0, math.nan], 3),
            "Expected t statistics that are numbers but got [1.0, nan].",
        ),
        (
            lambda: holm([0.1, math.nan]),
            "Expected p-values between 0 and 1 but got nan.",
        ),
        (lambda: holm([0.1, 1.5]), "Expected p-values between 0 and 1 but got 1.5."),
        (
            lambda: summarize(["0.5"]),  # type: ignore[list-item]
            "Expected numbers but got '0.5'.",
        ),
        (
            lambda: paired_difference({0: True, 1: 2.0}, {0: 1.0, 1: 1.0}),
            "Expected numbers but got True.",
        ),
        (
            lambda: paired_difference({0.5: 1.0}, {0.5: 1.0}),  # type: ignore[dict-item]
            "Expected a seed to be a whole number but got 0.5.",
        ),
        (
            lambda: unpaired_difference([[1.0], [2.0]], [1.0, 2.0]),  # type: ignore[list-item]
            "Expected numbers but got [1.0].",
        ),
    ],
)
def test_arguments_are_checked(wrong: Callable[[], object], message: str) -> None:
    with pytest.raises(AttnlabError) as error:
        wrong()
    assert str(error.value) == message


def test_nothing_has_no_mean() -> None:
    with pytest.raises(InputError) as raised:
        summarize([])
    assert str(raised.value) == "Expected at least one value to summarize but got none."
