"""Rank correlations and bootstrap intervals."""

from __future__ import annotations

import numpy as np
from scipy.stats import rankdata


def rank_correlations(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return Spearman of every row; 0 if all values of a row are the same, which rank nothing."""
    a, b = (rankdata(values, axis=1) for values in (one, other))
    a, b = (ranks - ranks.mean(1, keepdims=True) for ranks in (a, b))
    size = np.sqrt((a**2).sum(1) * (b**2).sum(1))
    return np.divide((a * b).sum(1), size, out=np.zeros_like(size), where=size > 0)


def with_interval(value: float, drawn: np.ndarray) -> list[float]:
    """Return a value with the 95 % interval of its bootstrap draws."""
    return [float(value), *(float(q) for q in np.quantile(drawn, (0.025, 0.975)))]
