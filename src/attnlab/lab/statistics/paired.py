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

from attnlab._errors import InputError, unknown_name
from attnlab._extras import needs
from attnlab.lab.statistics.anytime import anytime_p_value, radius, seeds_for_interval
from attnlab.results.table import Comparison, PairedDifference, Summary, Verdict

LEVEL = 0.95
"""Of the intervals, and one minus the error rate of a family of verdicts."""

Direction = Literal["higher", "lower"]
"""Which values of a metric are better."""


def summarize(values: Sequence[float]) -> Summary:
    """Mean and sample standard deviation of `values`."""
    if not values:
        raise InputError("Expected at least one value to summarize but got none.")
    std = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Summary(float(np.mean(values)), std, len(values))


def paired_difference(
    module: Mapping[int, float],
    plain: Mapping[int, float],
    level: float = LEVEL,
    cannot_tell: str = "",
) -> PairedDifference:
    """`module − plain` by seed, with its Student-t interval and its anytime interval.

    `cannot_tell` is a reason for which no verdict may be given; empty if there is none.
    """
    with needs("study"):
        from scipy import stats  # here, because it takes a second that no worker needs

    seeds = tuple(sorted(module.keys() & plain.keys()))
    if not seeds:
        raise InputError(
            f"Expected runs with the same seeds but got {sorted(module)} for the module and "
            f"{sorted(plain)} for the plain network."
        )
    pairs = np.array([(module[seed], plain[seed]) for seed in seeds], dtype=np.float64)
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
    if np.ptp(differences) <= 1e-9 * max(float(np.abs(pairs).max()), 1e-300):
        note = "the same difference for every seed: no spread to make an interval from"
        return _without_interval(mean, seeds, note, cannot_tell)
    test = stats.ttest_1samp(differences, 0.0)
    interval = test.confidence_interval(level)
    around = radius(differences.tolist(), level)
    finite = math.isfinite(around)
    return PairedDifference(
        mean=mean,
        low=float(interval.low),
        high=float(interval.high),
        p_value=float(test.pvalue),
        seeds=seeds,
        std=float(differences.std(ddof=1)),
        anytime_low=mean - around if finite else None,
        anytime_high=mean + around if finite else None,
        anytime_p=anytime_p_value(differences.tolist()),
        anytime_note="" if finite else _too_few(len(seeds), level),
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
    that stays right when seeds are added.
    """
    with needs("study"):
        from scipy import stats

    if not len(module) or not len(plain):
        raise InputError("Expected at least one value of the module and of the plain network.")
    values = [np.asarray(each, dtype=np.float64) for each in (module, plain)]
    if not all(np.isfinite(each).all() for each in values):
        note = "a run has no finite value"
        return _without_interval(math.nan, (), note, cannot_tell or note)
    mean = float(values[0].mean() - values[1].mean())
    if min(map(len, values)) < 2:
        return _without_interval(mean, (), "one run: no interval", cannot_tell)
    spread = max(float(np.ptp(each)) for each in values)
    if spread <= 1e-9 * max(*(float(np.abs(each).max()) for each in values), 1e-300):
        note = "the same value in every run: no spread to make an interval from"
        return _without_interval(mean, (), note, cannot_tell)
    test = stats.ttest_ind(*values, equal_var=False)
    interval = test.confidence_interval(level)
    return PairedDifference(
        mean=mean,
        low=float(interval.low),
        high=float(interval.high),
        p_value=float(test.pvalue),
        seeds=(),
        anytime_note="no shared seeds: the interval that stays right when seeds are added needs "
        "pairs",
        cannot_tell=cannot_tell,
    )


def _without_interval(
    mean: float, seeds: tuple[int, ...], note: str, cannot_tell: str
) -> PairedDifference:
    return PairedDifference(
        mean, None, None, None, seeds, note, anytime_note=note, cannot_tell=cannot_tell
    )


def _too_few(number: int, level: float) -> str:
    return (
        f"{number} seeds: the interval that stays right when seeds are added needs at least "
        f"{seeds_for_interval(level)}"
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, in the order given."""
    order = np.argsort(p_values, kind="stable")
    adjusted = np.empty(len(order))
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted.tolist()


def compare(
    differences: Mapping[str, PairedDifference],
    level: float = LEVEL,
    *,
    sequential: bool = False,
    better: Direction = "higher",
    also: Mapping[str, PairedDifference] | None = None,
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
    """
    if better not in ("higher", "lower"):
        raise unknown_name("direction", better, ("higher", "lower"))
    family = [*differences.values(), *(also or {}).values()]
    tested = [None if each.cannot_tell else each.figures(sequential)[2] for each in family]
    corrected = holm([1.0 if p is None else p for p in tested])
    found = {}
    # The rows come first in the family, so the others are left over.
    for (name, each), p, holms in zip(differences.items(), tested, corrected, strict=False):
        adjusted = None if p is None else holms
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
