"""Student's t: tails and quantiles, of scipy.special alone. To import scipy.stats takes half a
second and 50 MB more, for every command that looks at a study."""

from __future__ import annotations

from attnlab._extras import needs


def upper_tail(t: float, freedom: float) -> float:
    """The probability of a larger t. By symmetry it is that of less than −t, which is exact where
    one minus the probability of less than t would be lost in rounding."""
    with needs("study"):
        from scipy import special

    return float(special.stdtr(freedom, -t))


def upper_quantile(probability: float, freedom: float) -> float:
    """The t that is exceeded with this probability."""
    with needs("study"):
        from scipy import special

    return -float(special.stdtrit(freedom, probability))
