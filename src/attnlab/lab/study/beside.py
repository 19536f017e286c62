"""Figures beside the result that a study measured: their summary and paired difference by row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from attnlab.instruments.corruptions.result import CorruptionsResult
from attnlab.lab.statistics import paired_difference, summarize
from attnlab.results import Metric, StoredRun
from attnlab.results.table import Beside


class _Figure(NamedTuple):
    metric: Metric
    value: Callable[[CorruptionsResult], float]
    """As it is stored."""


def _top1(part: str, words: str) -> Metric:
    return Metric(name=f"{part}_top1", label=f"top-1, {words}", unit="%", scale=100)


def _ece(part: str, words: str) -> Metric:
    label = f"ECE, {words}"
    return Metric(name=f"{part}_ece", label=label, unit="%", scale=100, better="lower")


def _nll(part: str, words: str) -> Metric:
    return Metric(name=f"{part}_nll", label=f"NLL, {words}", better="lower", digits=3)


_CLEAN, _CORRUPTED = ("clean", "clean images"), ("mean", "corrupted images")
_FIGURES = (
    _Figure(_top1(*_CLEAN), lambda found: found.clean.top1),
    _Figure(_ece(*_CLEAN), lambda found: found.clean.ece),
    _Figure(_nll(*_CLEAN), lambda found: found.clean.nll),
    _Figure(_top1(*_CORRUPTED), lambda found: found.mean.top1),
    _Figure(_ece(*_CORRUPTED), lambda found: found.mean.ece),
    _Figure(_nll(*_CORRUPTED), lambda found: found.mean.nll),
)


def beside(
    runs: Mapping[int, StoredRun], plain: Mapping[int, StoredRun] | None, cannot_tell: str
) -> dict[str, Beside]:
    """Compare a row with the plain backbone in each figure that stands beside the result, by the
    figure's name; the runs of both are by seed. Empty if nothing was measured."""
    found = {}
    results, plain_results = _results(runs), _results(plain or {})
    for figure in _FIGURES if results else ():
        own, others = _values(results, figure), _values(plain_results, figure)
        if own:
            compared = None
            if plain is not None and own.keys() & others.keys():
                compared = paired_difference(own, others, cannot_tell=cannot_tell)
            found[figure.metric.name] = Beside(
                figure.metric, summarize(list(own.values())), compared
            )
    return found


def by_corruption(runs: Sequence[StoredRun]) -> dict[str, float]:
    """top-1 of each corruption in percent, mean over strengths and seeds."""
    values: dict[str, list[float]] = {}
    for run in runs:
        found = run.slim_result(CorruptionsResult)
        for row in () if found is None else found.rows:
            values.setdefault(row.corruption, []).append(100 * row.top1)
    return {name: sum(each) / len(each) for name, each in values.items()}


def _results(runs: Mapping[int, StoredRun]) -> dict[int, CorruptionsResult]:
    found = {seed: run.slim_result(CorruptionsResult) for seed, run in runs.items()}
    return {seed: result for seed, result in found.items() if result is not None}


def _values(results: Mapping[int, CorruptionsResult], figure: _Figure) -> dict[int, float]:
    return {seed: figure.metric.shown(figure.value(result)) for seed, result in results.items()}
