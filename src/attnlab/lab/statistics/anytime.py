"""Looking after every seed: the e-process of the t-test, its p-value, its confidence sequence.

The differences are normal with an unknown spread σ, and δ is their mean divided by σ. The e-value
is the likelihood ratio of δ drawn from a normal of variance g to δ = 0, with σ taken out by its
right-Haar prior dσ/σ. With the usual t of n differences it is

    e_n = (1 + n g)^(-1/2) · [ (1 + t²/(n-1)) / (1 + t²/((1 + n g)(n-1))) ]^(n/2)

If the mean is zero, then e_1 = 1, e_2, e_3, … is a martingale whatever σ is, so by Ville's
inequality it ever reaches 1/α with a probability of at most α. docs/explanation/looking.md derives
this. Hendriksen, de Heide and Grünwald (Bayesian Analysis 16, 2021) and Pérez-Ortiz et al. (arXiv
2208.07610, 2022) prove it in general; Wang and Ramdas (arXiv 2310.03722, 2023) give alternatives.

For a claim with a direction, that the mean is above a bound, there is a second e-process of the
same kind: δ is drawn from a few positive values, `EFFECTS`. docs/explanation/equivalence.md derives
it and shows its size and power.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnlab._checked import check_whole
from attnlab._errors import InputError

PRIOR_VARIANCE = 1.0
"""g. Effects of about one standard deviation of the paired difference are found soonest."""

EFFECTS = ((1.3, 0.5), (0.65, 0.4), (0.325, 0.1))
"""The prior of the one-sided e-process: effect sizes with their probabilities. A fixed test of 5 to
30 seeds decides effects of 2 to 0.6; two values a factor of two apart serve these with nearly
equal power, 0.52 to 0.58 where the fixed test has 0.95. A single one fails away from its own
number of seeds (an effect of 1: 0.68 at 10 seeds and 0.30 at 30), and a half normal of variance 1,
which spends its mass near zero, has 0.47 at 10. The last value, with a tenth of the probability,
keeps margins of a third of the spread within reach of many seeds."""

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(96)


def log_e_value(t: ArrayLike, number: ArrayLike, g: float = PRIOR_VARIANCE) -> NDArray[np.float64]:
    """log e_n of t statistics of `number` ≥ 2 differences, element by element.

    With the ratio u = t²/(n-1) and k = 1 + n g, the bracket is k (1 - (k - 1)/(k + u)), which stays
    finite when there is no spread and t is infinite.
    """
    _check_variance(g)
    statistics, n = np.asarray(t, dtype=np.float64), np.asarray(number, dtype=np.float64)
    if np.any(n < 2) or np.any(n != np.floor(n)):
        raise InputError(
            f"Expected whole numbers of differences, each at least 2, but got {number!r}."
        )
    if np.isnan(statistics).any():
        raise InputError(f"Expected t statistics that are numbers but got {t!r}.")
    if statistics.ndim and n.ndim and statistics.shape[-1] != n.shape[-1]:
        raise InputError(
            f"Expected as many t statistics as numbers of differences but got "
            f"{statistics.shape[-1]} and {n.shape[-1]}."
        )
    u = statistics**2 / (n - 1)
    ng = n * g
    bracket = np.log1p(ng) + np.log1p(-ng / (1 + ng + u))
    return n / 2 * bracket - np.log1p(ng) / 2


def e_value(differences: Sequence[float], g: float = PRIOR_VARIANCE) -> float:
    """Return how many times likelier the differences are with an effect than without; 1 for one of
    them.

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
    check_level(level)
    check_whole("the number of differences", number, 0)
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


def log_e_above(t: ArrayLike, number: int) -> NDArray[np.float64]:
    """log of the e-value that the mean is above zero, of t statistics of `number` ≥ 2 differences.

    It grows with t. So if the true mean is below zero, adding what is missing to all differences
    makes every one of its values larger: it is valid for the whole hypothesis "at most zero"
    because it is for zero.

    With r = Σx/√Σx² and one effect δ it is exp(-n δ²/2) · E exp(δ r U), U chi-distributed with n
    degrees of freedom; r = √n t/√(t² + n - 1) is all that remains of the differences.
    """
    check_whole("the number of differences", number, 2)
    statistics = np.asarray(t, dtype=np.float64)
    if np.isnan(statistics).any():
        raise InputError(f"Expected t statistics that are numbers but got {t!r}.")
    # 1/√(1 + (n - 1)/t²) is right for an infinite t, which stands for no spread.
    with np.errstate(divide="ignore"):
        r = np.sign(statistics) * np.sqrt(number / (1 + (number - 1) / statistics**2))
    return _log_e_of(r, number)


def p_value_above(differences: Sequence[float]) -> float:
    """A p-value of "the mean is at most zero" that is valid whenever one looks."""
    values = _checked(differences)
    if len(values) == 1:
        return 1.0
    return math.exp(-max(0.0, float(log_e_above(_t(values), len(values)))))


def t_limit_above(number: int, level: float) -> float:
    """The t from which on "at most zero" is rejected with an error rate of 1 - level; infinite if
    there is none, for few differences."""
    check_level(level)
    check_whole("the number of differences", number, 0)
    if number < 2:
        return math.inf
    # In r, which is bounded, bisection needs no bracket; 60 halvings are a double's digits.
    low, high, wanted = 0.0, math.sqrt(number), -math.log(1 - level)
    if float(_log_e_of(np.float64(high), number)) <= wanted:
        return math.inf
    for _ in range(60):
        middle = (low + high) / 2
        if float(_log_e_of(np.float64(middle), number)) < wanted:
            low = middle
        else:
            high = middle
    return high * math.sqrt((number - 1) / (number - high**2))


def seeds_for_margin(level: float) -> int:
    """The least number of differences for which `t_limit_above` is finite: 5 at 95 %."""
    number = 2
    while math.isinf(t_limit_above(number, level)):
        number += 1
    return number


def seeds_for_interval(level: float, g: float = PRIOR_VARIANCE) -> int:
    """The least number of differences for which `radius` is finite: 5 at 95 % with g = 1."""
    number = 2
    while math.isinf(t_limit(number, level, g)):
        number += 1
    return number


def _log_e_of(r: ArrayLike, number: int) -> NDArray[np.float64]:
    """`log_e_above` of r = Σx/√Σx²: the mean over the prior of exp(-n δ²/2) · E exp(δ r U)."""
    parts = [
        math.log(share) - number * effect**2 / 2 + _log_moment(effect * np.asarray(r), number)
        for effect, share in EFFECTS
    ]
    return np.logaddexp.reduce(parts)


def _log_moment(z: NDArray[np.float64], number: int) -> NDArray[np.float64]:
    """log E exp(z U) for U chi-distributed with `number` degrees of freedom.

    By Gauss-Legendre quadrature around the peak of u^(n-1) exp(-u²/2 + z u). Its logarithm is
    concave with a curvature of at least 1, so ten times the width at the peak is more than enough.
    """
    peak = (z + np.sqrt(z**2 + 4 * (number - 1))) / 2
    width = 1 / np.sqrt(1 + (number - 1) / peak**2)
    start, end = np.maximum(peak - 10 * width, 0), peak + 10
    u = start[..., None] + (end - start)[..., None] * (_NODES + 1) / 2
    heights = (number - 1) * np.log(u) - u**2 / 2 + z[..., None] * u
    largest = heights.max(-1)
    area = (np.exp(heights - largest[..., None]) * _WEIGHTS).sum(-1) * (end - start) / 2
    whole = (number / 2 - 1) * math.log(2) + math.lgamma(number / 2)
    return np.log(area) + largest - whole


def _t(values: NDArray[np.float64]) -> float:
    mean, error = float(values.mean()), float(values.std(ddof=1)) / math.sqrt(len(values))
    certain = math.copysign(math.inf, mean) if mean else 0.0
    return mean / error if error > 0 else certain


def _log_e_value(differences: Sequence[float], g: float) -> float:
    values = _checked(differences)
    if len(values) == 1:
        _check_variance(g)
        return 0.0
    return float(log_e_value(_t(values), len(values), g))


def _checked(differences: Sequence[float]) -> NDArray[np.float64]:
    values = np.asarray(differences, dtype=np.float64)
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
        raise InputError(f"Expected one or more finite differences but got {differences!r}.")
    return values


def _check_variance(g: float) -> None:
    if not is_real_number(g) or not 0 < g < math.inf:
        raise InputError(f"Expected a variance g of the effect size above 0 but got {g!r}.")


def check_level(level: object, above: float = 0) -> None:
    """Refuse a level that is not a number between `above` and 1. Comparisons with nan are false, so
    a verdict would take nan for certainty."""
    if not is_real_number(level) or not above < level < 1:
        raise InputError(
            f"Expected a level between {above:g} and 1, such as 0.95, but got {level!r}."
        )


def is_real_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a real number, nan and infinity among them, and not true or
    false."""
    return isinstance(value, Real) and not isinstance(value, bool)
