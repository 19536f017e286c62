"""What the seeds say: mean ± std, paired differences with two kinds of interval, Holm's correction.

Runs of one seed share data order, augmentation and the initial weights of everything but the gate,
so a module is compared with the plain network seed by seed. With the handful of seeds that anyone
can afford, a bootstrap interval is far too narrow; Student's t is right for normal differences and
a number of seeds that was fixed beforehand. Whoever looks and then adds seeds needs the wider
interval of `attnlab.lab.statistics.anytime`. Values are in the units in which they are shown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from attnlab._checked import check_whole
from attnlab._errors import InputError, unknown_name
from attnlab.lab.statistics.anytime import (
    anytime_p_value,
    check_level,
    is_real_number,
    radius,
    seeds_for_interval,
)
from attnlab.lab.statistics.student import upper_quantile, upper_tail
from attnlab.results.table import Comparison, PairedDifference, Summary, Verdict

LEVEL = 0.95
"""The level of the intervals, and one minus the error rate of a family of verdicts."""

Direction = Literal["higher", "lower"]
"""Which values of a metric are better."""


def summarize(values: Sequence[float]) -> Summary:
    """Mean and sample standard deviation of `values`."""
    if not values:
        raise InputError("Expected at least one value to summarize but got none.")
    own = _numbers(values)
    std = float(own.std(ddof=1)) if len(own) > 1 else None
    return Summary(float(own.mean()), std, len(own))


def paired_difference(
    module: Mapping[int, float],
    plain: Mapping[int, float],
    level: float = LEVEL,
    cannot_tell: str = "",
) -> PairedDifference:
    """`module − plain` by seed, with its Student-t interval and its anytime interval.

    `cannot_tell` is a reason for which no verdict may be given; empty if there is none.
    """
    check_level(level)
    for seed in (*module, *plain):
        check_whole("a seed", seed)
    seeds = tuple(sorted(module.keys() & plain.keys()))
    if not seeds:
        raise InputError(
            f"Expected runs with the same seeds but got {sorted(module)} for the module and "
            f"{sorted(plain)} for the plain network."
        )
    pairs = np.stack([_numbers([each[seed] for seed in seeds]) for each in (module, plain)], 1)
    for seed, pair in zip(seeds, pairs.tolist(), strict=True):
        if not all(map(math.isfinite, pair)):  # to leave the seed out would favour what diverges
            note = f"seed {seed} has no finite value (module {pair[0]}, plain {pair[1]})"
            return _without_interval(math.nan, seeds, note, cannot_tell or note)
    differences = pairs[:, 0] - pairs[:, 1]
    mean = float(differences.mean())
    if len(seeds) == 1:
        return _without_interval(mean, seeds, "one seed: no interval", cannot_tell)
    # Accuracies on a small test set are coarse, so equal differences are common. A t-test would
    # take them for certainty; rounding makes them differ in the last bits.
    std = float(differences.std(ddof=1))
    if std == 0 or np.ptp(differences) <= 1e-9 * max(float(np.abs(pairs).max()), 1e-300):
        note = "the same difference for every seed: no spread to make an interval from"
        return _without_interval(mean, seeds, note, cannot_tell)
    return _with_intervals(differences, std, seeds, level, cannot_tell)


def _with_intervals(
    differences: np.ndarray, std: float, seeds: tuple[int, ...], level: float, cannot_tell: str
) -> PairedDifference:
    """Student's interval, and the one that stays right for whoever looks and adds seeds."""
    mean = float(differences.mean())
    error, freedom = std / math.sqrt(len(seeds)), len(seeds) - 1
    fixed = upper_quantile((1 - level) / 2, freedom) * error
    around = radius(differences.tolist(), level)
    finite = math.isfinite(around)
    return PairedDifference(
        mean=mean,
        low=mean - fixed,
        high=mean + fixed,
        p_value=2 * upper_tail(abs(mean) / error, freedom),
        seeds=seeds,
        std=std,
        anytime_low=mean - around if finite else None,
        anytime_high=mean + around if finite else None,
        anytime_p=anytime_p_value(differences.tolist()),
        anytime_note="" if finite else too_few_seeds(len(seeds), seeds_for_interval(level)),
        cannot_tell=cannot_tell,
    )


def unpaired_difference(
    module: Sequence[float],
    plain: Sequence[float],
    level: float = LEVEL,
    cannot_tell: str = "",
) -> PairedDifference:
    """`module − plain` of the means of runs that share no seeds, with Welch's t interval.

    What seeds have in common is not taken out, so it is wider than a paired one; and there is none
    that stays right when seeds are added. With few or very unequal numbers of runs Welch's 95 % is
    not 95 % (89 % at 2 and 10 runs, 93 % at 3 and 10), so there is none: it needs 3 runs on each
    side if both have as many, 4 if one has at most twice as many as the other, else 5. From there
    on its coverage is at least 94 % for ratios of the spreads from 0.1 to 10.
    """
    check_level(level)
    if not len(module) or not len(plain):
        raise InputError("Expected at least one value of the module and of the plain network.")
    values = [_numbers(each) for each in (module, plain)]
    if not all(np.isfinite(each).all() for each in values):
        note = "a run has no finite value"
        return _without_interval(math.nan, (), note, cannot_tell or note)
    mean = float(values[0].mean() - values[1].mean())
    few = _too_few_for_welch(len(module), len(plain))
    if few:
        return _without_interval(mean, (), few, cannot_tell)
    spread = max(float(np.ptp(each)) for each in values)
    if spread <= 1e-9 * max(*(float(np.abs(each).max()) for each in values), 1e-300):
        note = "the same value in every run: no spread to make an interval from"
        return _without_interval(mean, (), note, cannot_tell)
    low, high, p = _welch(values[0], values[1], level)
    return PairedDifference(
        mean=mean,
        low=low,
        high=high,
        p_value=p,
        seeds=(),
        anytime_note="no shared seeds: the interval that stays right when seeds are added needs "
        "pairs",
        cannot_tell=cannot_tell,
    )


def _welch(
    one: NDArray[np.float64], other: NDArray[np.float64], level: float
) -> tuple[float, float, float]:
    """Welch's interval of the difference of the means, and its two-sided p-value."""
    # Written out, because scipy warns of lost precision if all runs of one side are equal.
    parts = np.array([own.var(ddof=1) / len(own) for own in (one, other)])
    freedom = parts.sum() ** 2 / (parts**2 / (np.array([len(one), len(other)]) - 1)).sum()
    mean, error = float(one.mean() - other.mean()), math.sqrt(parts.sum())
    around = upper_quantile((1 - level) / 2, freedom) * error
    return mean - around, mean + around, 2 * upper_tail(abs(mean) / error, freedom)


def _too_few_for_welch(one: int, other: int) -> str:
    """Why so few runs have no interval; empty if they have one. The limits are chosen by the
    coverage that tests/lab/statistics simulates."""
    least = 3 if one == other else 4 if max(one, other) <= 2 * min(one, other) else 5
    if min(one, other) >= least:
        return ""
    return (
        f"{one} and {other} runs without shared seeds: Welch's interval is right from 3 runs on if "
        f"both have as many, from 4 on if one has at most twice as many, else from 5 on"
    )


def _numbers(values: Sequence[float]) -> NDArray[np.float64]:
    """The values as an array; nan and infinity stay, because a run that diverged is not left out,
    but text, true and false, and lists are refused."""
    for value in values:
        if not is_real_number(value):
            raise InputError(f"Expected numbers but got {value!r}.")
    return np.asarray(values, dtype=np.float64)


def _without_interval(
    mean: float, seeds: tuple[int, ...], note: str, cannot_tell: str
) -> PairedDifference:
    return PairedDifference(
        mean, None, None, None, seeds, note, anytime_note=note, cannot_tell=cannot_tell
    )


def too_few_seeds(number: int, least: int) -> str:
    """Say that `number` seeds have no anytime interval, and how many do."""
    return (
        f"{number} seeds: the interval that stays right when seeds are added needs at least {least}"
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, in the order given."""
    for p in p_values:
        if not is_real_number(p) or not 0 <= p <= 1:
            raise InputError(f"Expected p-values between 0 and 1 but got {p!r}.")
    order = np.argsort(p_values, kind="stable")
    adjusted = np.empty(len(order))
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted.tolist()


def judge_differences(
    differences: Mapping[str, PairedDifference],
    level: float = LEVEL,
    *,
    sequential: bool = False,
    better: Direction = "higher",
    also: Mapping[str, PairedDifference] | None = None,
    share: float = 1.0,
) -> dict[str, Comparison]:
    """Verdicts on a family of modules that were compared with one plain network.

    "better" and "worse" need a Holm-adjusted p-value below 1 − `level`; that implies an interval
    without zero, which is required all the same. A difference without a p-value counts in the
    family as if it had p = 1: it has no verdict, and makes no other's easier.

    Args:
        differences: by the name of the module, in the metric's own direction.
        level: one minus the error rate of the whole family.
        sequential: p-values and intervals that stay right when the number of seeds was not fixed
            beforehand, in place of the t-test's. Then fewer seeds than the interval needs give
            "cannot tell".
        better: which values of the metric are better; a module with a lower error is better.
        also: differences that were looked at as well and no longer have a row. They count in the
            family, even under the name of one that is there, and are not returned.
        share: of the error rate that this family has, where others have the rest.
    """
    check_level(level)
    if better not in ("higher", "lower"):
        raise unknown_name("direction", better, ("higher", "lower"))
    family = [*differences.values(), *(also or {}).values()]
    tested = [None if each.cannot_tell else each.figures(sequential)[2] for each in family]
    corrected = holm([1.0 if p is None else p for p in tested])
    found = {}
    # The rows come first in the family, so the others are left over.
    for (name, each), p, holms in zip(differences.items(), tested, corrected, strict=False):
        adjusted = None if p is None else min(1.0, holms / share)
        verdict = _verdict(each, adjusted, level, sequential, better)
        found[name] = Comparison(each, adjusted, verdict, sequential)
    return found


def _verdict(
    difference: PairedDifference,
    adjusted: float | None,
    level: float,
    sequential: bool,
    better: Direction,
) -> Verdict:
    low, high, _ = difference.figures(sequential)
    if low is None or high is None or adjusted is None:
        return "cannot tell"
    if adjusted >= 1 - level or low <= 0 <= high:
        return "no difference shown"
    return "better" if (difference.mean > 0) == (better == "higher") else "worse"
