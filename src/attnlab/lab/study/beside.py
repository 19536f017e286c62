"""Figures beside the result that a study measured: their summary and paired difference by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from attnlab.lab.statistics import paired_difference, summarize
from attnlab.results import Metric, StoredRun
from attnlab.results.table import Beside


class _Figure(NamedTuple):
    part: str
    key: str
    metric: Metric


def _figures(part: str, words: str) -> tuple[_Figure, ...]:
    metrics = (
        Metric(name=f"{part}_top1", label=f"top-1, {words}", unit="%", scale=100),
        Metric(name=f"{part}_ece", label=f"ECE, {words}", unit="%", scale=100, better="lower"),
        Metric(name=f"{part}_nll", label=f"NLL, {words}", better="lower", digits=3),
    )
    return tuple(_Figure(part, metric.name.removeprefix(f"{part}_"), metric) for metric in metrics)


_FIGURES = (*_figures("clean", "clean images"), *_figures("mean", "corrupted images"))


def beside(
    runs: Mapping[int, StoredRun], plain: Mapping[int, StoredRun] | None, cannot_tell: str
) -> dict[str, Beside]:
    """Of a row, by the figure's name; `runs` and those of the plain backbone are by seed. Empty
    where nothing was measured."""
    found = {}
    for figure in _FIGURES:
        own, others = _values(runs, figure), _values(plain or {}, figure)
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
        measured = run.measured("corruptions")
        for row in (measured.found or {}).get("rows", ()) if measured is not None else ():
            values.setdefault(row["corruption"], []).append(100 * row["top1"])
    return {name: sum(each) / len(each) for name, each in values.items()}


def _values(runs: Mapping[int, StoredRun], figure: _Figure) -> dict[int, float]:
    found = {}
    for seed, run in runs.items():
        measured = run.measured("corruptions")
        if measured is not None and measured.found is not None:
            found[seed] = figure.metric.shown(measured.found[figure.part][figure.key])
    return found
