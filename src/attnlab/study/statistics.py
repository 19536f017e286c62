"""What the seeds say: mean ± std, paired differences with Student-t intervals, Holm's correction.

Runs of one seed share data order, augmentation and the initial weights of everything but the gate,
so a module is compared with the plain network seed by seed. With the handful of seeds that anyone
can afford, a bootstrap interval is far too narrow; Student's t is right for normal differences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from attnlab._errors import InputError

LEVEL = 0.95
"""Of the intervals, and one minus the error rate of a family of verdicts."""

Verdict = Literal["better", "worse", "no difference shown", "cannot tell"]


@dataclass(frozen=True)
class Summary:
    """Mean and spread over seeds, as the papers print them."""

    mean: float
    std: float | None
    """Of the sample (n − 1 below the line; the papers do not say which); None for one value."""
    number: int

    def text(self, digits: int = 2) -> str:
        """`"94.26 ± 0.14"`."""
        mean = f"{self.mean:.{digits}f}"
        return mean if self.std is None else f"{mean} ± {self.std:.{digits}f}"

    def __str__(self) -> str:
        return self.text()


@dataclass(frozen=True)
class PairedDifference:
    """Module minus plain network over the seeds that both have."""

    mean: float
    low: float | None
    high: float | None
    p_value: float | None
    """Two-sided, of the paired t-test, before any correction."""
    seeds: tuple[int, ...]
    note: str = ""
    """Why there is no interval; empty if there is one."""


@dataclass(frozen=True)
class Comparison:
    """A paired difference among a family of others that were tested with it."""

    difference: PairedDifference
    adjusted_p: float | None
    """By Holm over the family; None where there is no p-value."""
    verdict: Verdict


def summarize(values: Sequence[float]) -> Summary:
    """Mean and sample standard deviation of `values`."""
    if not values:
        raise InputError("Expected at least one value to summarize but got none.")
    std = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Summary(float(np.mean(values)), std, len(values))


def paired_difference(
    module: Mapping[int, float], plain: Mapping[int, float], level: float = LEVEL
) -> PairedDifference:
    """`module − plain` by seed, with its Student-t interval."""
    from scipy import stats  # here, because it takes a second that no worker needs

    seeds = tuple(sorted(module.keys() & plain.keys()))
    if not seeds:
        raise InputError(
            f"Expected runs with the same seeds but got {sorted(module)} for the module and "
            f"{sorted(plain)} for the plain network."
        )
    differences = np.array([module[seed] - plain[seed] for seed in seeds])
    mean = float(differences.mean())
    if len(seeds) == 1:
        return PairedDifference(mean, None, None, None, seeds, "one seed: no interval")
    scale = max(abs(value) for values in (module, plain) for value in values.values())
    # Accuracies on a small test set are coarse, so equal differences are common. A t-test would
    # take them for certainty; rounding makes them differ in the last bits.
    if np.ptp(differences) <= 1e-9 * max(scale, 1e-300):
        note = "the same difference for every seed: no spread to make an interval from"
        return PairedDifference(mean, None, None, None, seeds, note)
    test = stats.ttest_1samp(differences, 0.0)
    interval = test.confidence_interval(level)
    return PairedDifference(
        mean, float(interval.low), float(interval.high), float(test.pvalue), seeds
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
    differences: Mapping[str, PairedDifference], level: float = LEVEL
) -> dict[str, Comparison]:
    """Verdicts on a family of modules that were compared with one plain network.

    "better" and "worse" need a Holm-adjusted p-value below 1 − `level`; that implies an interval
    without zero, which is required all the same.
    """
    tested = {name: d.p_value for name, d in differences.items() if d.p_value is not None}
    adjusted = dict(zip(tested, holm(list(tested.values())), strict=True))
    return {
        name: Comparison(each, adjusted.get(name), _verdict(each, adjusted.get(name), level))
        for name, each in differences.items()
    }


def _verdict(difference: PairedDifference, adjusted: float | None, level: float) -> Verdict:
    if difference.low is None or difference.high is None or adjusted is None:
        return "cannot tell"
    if adjusted >= 1 - level or difference.low <= 0 <= difference.high:
        return "no difference shown"
    return "better" if difference.mean > 0 else "worse"
