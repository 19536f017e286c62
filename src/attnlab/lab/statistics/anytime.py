"""Looking after every seed: the e-process of the t-test, its p-value, its confidence sequence.

The differences are normal with an unknown spread σ, and δ is their mean divided by σ. The e-value
is the likelihood ratio of δ drawn from a normal of variance g to δ = 0, with σ taken out by its
right-Haar prior dσ/σ. With the usual t of n differences it is

    e_n = (1 + n g)^(-1/2) · [ (1 + t²/(n-1)) / (1 + t²/((1 + n g)(n-1))) ]^(n/2)

If the mean is zero, then e_1 = 1, e_2, e_3, … is a martingale whatever σ is, so by Ville's
inequality it ever reaches 1/α with a probability of at most α. docs/explanation/looking.md derives
this. Hendriksen, de Heide and Grünwald (Bayesian Analysis 16, 2021) and Pérez-Ortiz et al. (arXiv
2208.07610, 2022) prove it in general; Wang and Ramdas (arXiv 2310.03722, 2023) give alternatives.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnlab._errors import InputError

PRIOR_VARIANCE = 1.0
"""g. Effects of about one standard deviation of the paired difference are found soonest."""


def log_e_value(t: ArrayLike, number: ArrayLike, g: float = PRIOR_VARIANCE) -> NDArray[np.float64]:
    """log e_n of t statistics of `number` ≥ 2 differences, element by element.

    With the ratio u = t²/(n-1) and k = 1 + n g, the bracket is k (1 - (k - 1)/(k + u)), which stays
    finite when there is no spread and t is infinite.
    """
    _check_variance(g)
    n = np.asarray(number, dtype=np.float64)
    if np.any(n < 2):
        raise InputError("Expected t statistics of at least 2 differences.")
    u = np.asarray(t, dtype=np.float64) ** 2 / (n - 1)
    ng = n * g
    bracket = np.log1p(ng) + np.log1p(-ng / (1 + ng + u))
    return n / 2 * bracket - np.log1p(ng) / 2


def e_value(differences: Sequence[float], g: float = PRIOR_VARIANCE) -> float:
    """How many times likelier the differences are with an effect than without; 1 for one of them.

    Their order does not matter, nor their unit.
    """
    with np.errstate(over="ignore"):
        return float(np.exp(_log_e_value(differences, g)))


def anytime_p_value(differences: Sequence[float], g: float = PRIOR_VARIANCE) -> float:
    """min(1, 1/e_n): a p-value that is valid whenever one looks, for whatever reason one stopped.

    The least of 1/e_1, …, 1/e_n would be valid too, and smaller. But it depends on the order in
    which the seeds came in, and it can call a difference shown that the present interval no longer
    does. 1/e_n depends on the differences alone, and is below α exactly when zero is outside the
    interval of `radius`.
    """
    return math.exp(-max(0.0, _log_e_value(differences, g)))


def t_limit(number: int, level: float, g: float = PRIOR_VARIANCE) -> float:
    """The t at which e_n = 1/α for `number` differences, α = 1 - level; infinite if there is none.

    Solving the formula for t: t² = (n - 1)(A - 1)/(1 - A/(1 + n g)) with A = (√(1 + n g)/α)^(2/n).
    However large t is, e_n stays below (1 + n g)^((n-1)/2), so few differences never reach 1/α;
    that is A ≥ 1 + n g.
    """
    _check_variance(g)
    _check_level(level)
    if number < 2:
        return math.inf
    log_k = math.log1p(number * g)
    log_a = (log_k - 2 * math.log(1 - level)) / number
    if log_a >= log_k:
        return math.inf
    return math.sqrt((number - 1) * math.expm1(log_a) / -math.expm1(log_a - log_k))


def radius(differences: Sequence[float], level: float, g: float = PRIOR_VARIANCE) -> float:
    """Half the width of the confidence sequence: the means m with e_n(differences - m) < 1/α.

    All of these intervals, at every n, contain the true mean at once with a probability of at
    least `level`. Infinite while there are fewer than `seeds_for_interval` differences.
    """
    values = _checked(differences)
    limit = t_limit(len(values), level, g)
    if math.isinf(limit):
        return math.inf
    return limit * float(values.std(ddof=1)) / math.sqrt(len(values))


def seeds_for_interval(level: float, g: float = PRIOR_VARIANCE) -> int:
    """The least number of differences for which `radius` is finite: 5 at 95 % with g = 1."""
    number = 2
    while math.isinf(t_limit(number, level, g)):
        number += 1
    return number


def _log_e_value(differences: Sequence[float], g: float) -> float:
    values = _checked(differences)
    if len(values) == 1:
        _check_variance(g)
        return 0.0
    mean, error = float(values.mean()), float(values.std(ddof=1)) / math.sqrt(len(values))
    certain = math.inf if mean else 0.0
    return float(log_e_value(mean / error if error > 0 else certain, len(values), g))


def _checked(differences: Sequence[float]) -> NDArray[np.float64]:
    values = np.asarray(differences, dtype=np.float64)
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
        raise InputError(f"Expected one or more finite differences but got {differences!r}.")
    return values


def _check_variance(g: float) -> None:
    if not 0 < g < math.inf:
        raise InputError(f"Expected a variance g of the effect size above 0 but got {g!r}.")


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise InputError(f"Expected a level between 0 and 1, such as 0.95, but got {level!r}.")
