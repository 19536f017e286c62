"""As good as: two one-sided tests within a margin that was stated beforehand.

That no difference was shown does not show that there is none: a study of two seeds shows nothing.
Equivalence is a claim of its own, that the true mean difference δ lies within ±m. It is shown when
both δ ≤ −m and δ ≥ m are rejected (Schuirmann, 1987), each by a one-sided paired t-test, so its
p-value is the larger of the two. It is below α exactly when the interval of level 1 − 2α lies
within the margin. For those who looked and then added seeds, each of the two tests is the one-sided
e-process of `attnlab.lab.statistics.anytime`; docs/explanation/equivalence.md shows its size and
power.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from attnlab._errors import InputError
from attnlab.lab.statistics.anytime import (
    check_level,
    is_real_number,
    p_value_above,
    seeds_for_margin,
    t_limit_above,
)
from attnlab.lab.statistics.paired import LEVEL, holm, paired_difference, too_few_seeds
from attnlab.lab.statistics.student import upper_quantile, upper_tail
from attnlab.results.table import Equivalence

LEAST_LEVEL = 0.5
"""Levels are above it: with an error rate α of a half or more the interval of level 1 − 2α, which
must lie within the margin, is empty."""


def equivalence(
    module: Mapping[int, float],
    other: Mapping[int, float],
    margin: float,
    level: float = LEVEL,
    *,
    to: str = "",
    sequential: bool = False,
    cannot_tell: str = "",
) -> Equivalence:
    """Return whether `module` is as good as `other`, by the seeds that both have.

    Args:
        module: values by seed.
        other: those that it is to be as good as.
        margin: how large a difference counts as none, in the unit of the values.
        level: one minus the error rate.
        to: what the other is called.
        sequential: tests and interval that stay right when the number of seeds was not fixed
            beforehand; they need more seeds.
        cannot_tell: a reason for which nothing may be said; empty if there is none.
    """
    check_level(level, LEAST_LEVEL)
    _check_margin(margin)
    difference = paired_difference(module, other, level, cannot_tell)
    mean, seeds = difference.mean, difference.seeds
    why = cannot_tell or difference.note
    if difference.std is None:
        return Equivalence(to, margin, mean, None, None, None, seeds, why, sequential)
    error = difference.std / math.sqrt(len(seeds))
    if sequential:
        values = np.array([module[seed] - other[seed] for seed in seeds], dtype=np.float64)
        around = t_limit_above(len(seeds), level) * error
        p = max(p_value_above((margin + side * values).tolist()) for side in (1, -1))
        if math.isinf(around):
            why = why or too_few_seeds(len(seeds), seeds_for_margin(level))
    else:
        p, around = _at_a_fixed_number(mean, error, len(seeds) - 1, margin, level)
    low, high = (mean - around, mean + around) if math.isfinite(around) else (None, None)
    return Equivalence(to, margin, mean, low, high, p, seeds, why, sequential)


def _check_margin(margin: float) -> None:
    if not is_real_number(margin) or not 0 < margin < math.inf:
        raise InputError(f"Expected a margin above zero but got {margin!r}.")


def _at_a_fixed_number(
    mean: float, error: float, freedom: int, margin: float, level: float
) -> tuple[float, float]:
    """The larger p-value of the two t-tests, and half the width of the interval."""
    below = upper_tail((margin + mean) / error, freedom)  # rejects δ ≤ −m
    above = upper_tail((margin - mean) / error, freedom)  # rejects δ ≥ m
    return max(below, above), upper_quantile(1 - level, freedom) * error


def judge(
    family: Mapping[str, Equivalence],
    level: float = LEVEL,
    *,
    also: Mapping[str, Equivalence] | None = None,
    share: float = 1.0,
) -> dict[str, Equivalence]:
    """The verdicts on rows that were all compared with one: Holm over the family. One without a
    p-value counts as if it had p = 1.

    Args:
        family: by the name of the row.
        level: one minus the error rate of the whole family.
        also: rows that were looked at as well and are no longer there. They count in the family
            and are not returned.
        share: of the error rate that this family has, where others have the rest.
    """
    check_level(level, LEAST_LEVEL)
    every = [*family.values(), *(also or {}).values()]
    adjusted = holm([1.0 if e.p_value is None else e.p_value for e in every])
    return {
        name: each.judged(min(1.0, p / share), 1 - level)
        # The rows come first in the family, so the others are left over.
        for (name, each), p in zip(family.items(), adjusted, strict=False)
    }
