"""The time of one network relative to another's: both in one process, in turns."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev
from time import perf_counter

import torch

from attnlab._extras import needs

LEVEL = 0.95
SHORTEST = 0.05
"""Seconds of one timing: shorter calls are repeated, so that the clock's grain does not count."""
FEWEST, MOST = 3, 31
"""Pairs."""


@dataclass(frozen=True)
class PairedTime:
    """Of `pairs` pairs of timings."""

    seconds: float
    """Of one call, median."""
    reference_seconds: float
    ratio: float
    """Seconds over the reference's: the geometric mean over pairs."""
    low: float
    """Of Student's t interval of the logarithm."""
    high: float
    pairs: int


def paired_time(
    run: Callable[[], object],
    reference: Callable[[], object],
    seconds: float,
    device: torch.device,
) -> PairedTime:
    """Time both in turns for about `seconds`, at least 3 and at most 31 pairs. The order changes
    from pair to pair, so that neither always runs in the other's warm cache."""
    runs = (run, reference)
    warm = [_warm(each, device) for each in runs]
    repeats = [max(1, math.ceil(SHORTEST / each)) for each in warm]
    expected = sum(number * each for number, each in zip(repeats, warm, strict=True))
    number = min(MOST, max(FEWEST, int(seconds / expected)))
    pairs: list[tuple[float, float]] = []
    for turn in range(number):
        order = (0, 1) if turn % 2 == 0 else (1, 0)
        times = {which: _timed(runs[which], repeats[which], device) for which in order}
        pairs.append((times[0], times[1]))
    return summarised(pairs)


def summarised(pairs: Sequence[tuple[float, float]]) -> PairedTime:
    """Of (seconds, the reference's seconds) of at least two pairs."""
    with needs("study"):
        from scipy.stats import t

    logarithms = [math.log(mine / theirs) for mine, theirs in pairs]
    mean = fmean(logarithms)
    number = len(pairs)
    reach = float(t.ppf((1 + LEVEL) / 2, number - 1)) * stdev(logarithms) / math.sqrt(number)
    return PairedTime(
        median(mine for mine, _ in pairs),
        median(theirs for _, theirs in pairs),
        math.exp(mean),
        math.exp(mean - reach),
        math.exp(mean + reach),
        number,
    )


def _warm(run: Callable[[], object], device: torch.device) -> float:
    """About the seconds of a call. The first one allocates, which matters where calls are short."""
    first = _timed(run, 1, device)
    return first if first > 20 * SHORTEST else _timed(run, 1, device)


def _timed(run: Callable[[], object], repeats: int, device: torch.device) -> float:
    _wait(device)
    began = perf_counter()
    for _ in range(repeats):
        run()
    _wait(device)
    return (perf_counter() - began) / repeats


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
