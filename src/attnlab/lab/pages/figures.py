"""Figures of a study: plain data in, Vega-Lite specification out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from attnlab._spread import evenly_spread
from attnlab.page.plot import BLUE, FULL, GREY, HALF, RED, Spec, row_colours
from attnlab.page.tables import minus
from attnlab.results import Metric
from attnlab.results.epoch import Budget
from attnlab.results.metric import directed
from attnlab.results.table import Standing

INK = "#1b2130"
MOST_DOTS = 20
"""Seeds of a row that are drawn one by one: more than these hide each other."""
_COLOURS = {
    "gain": BLUE,
    "loss": RED,
    "within noise": GREY,
    "before correction only": BLUE,
    "no interval": GREY,
    "cannot tell": GREY,
}


@dataclass(frozen=True)
class ForestRow:
    """One module against the plain backbone, in the shown unit of a metric."""

    module: str
    mean: float
    low: float | None
    high: float | None
    standing: Standing
    seeds: Mapping[int, float]


def forest_figure(rows: Sequence[ForestRow], metric: Metric, title: str = "") -> Spec:
    """Paired differences: a dot per seed, the mean, and its interval; grey where zero is inside."""
    y = {
        "field": "module",
        "type": "nominal",
        "sort": [row.module for row in rows],
        "title": None,
        "axis": {"domain": False, "ticks": False, "grid": False, "labelLimit": 130},
    }
    unit = f" ({metric.difference_unit})" if metric.difference_unit else ""
    x = {
        "field": "mean",
        "type": "quantitative",
        "title": directed(f"Δ {metric.label}, paired by seed{unit}", metric),
        "axis": {"grid": False, "tickCount": 6},
    }
    zero = {
        "data": {"values": [{"zero": 0}]},
        "mark": {"type": "rule", "strokeDash": [3, 2], "color": INK, "aria": False},
        "encoding": {"x": {"field": "zero", "type": "quantitative"}, "y": None},
    }
    bars, means = _interval_layers(rows, metric, x)
    return {
        "title": title or None,
        "width": FULL,
        "height": {"step": 27},
        "encoding": {"y": y},
        "layer": [zero, bars, _seed_layer(rows, metric, x), means],
    }


def _interval_layers(rows: Sequence[ForestRow], metric: Metric, x: Spec) -> tuple[Spec, Spec]:
    """The bar of every interval, and the dot of its mean."""
    values = [
        {
            "module": row.module,
            "mean": row.mean,
            "low": row.mean if row.low is None else row.low,
            "high": row.mean if row.high is None else row.high,
            "colour": _COLOURS[row.standing],
            "hollow": row.standing == "before correction only",
            "text": _forest_text(row, metric),
        }
        for row in rows
    ]
    colour = {"field": "colour", "type": "nominal", "scale": None}
    bars = {
        "data": {"values": values},
        "mark": {"type": "rule", "strokeWidth": 2.2, "aria": False},
        "encoding": {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "color": colour},
    }
    means = {
        "data": {"values": values},
        "mark": {"type": "point", "size": 62, "opacity": 1, "strokeWidth": 2},
        "encoding": {
            "x": x,
            "stroke": colour,
            "fill": {"condition": {"test": "datum.hollow", "value": "white"}, **colour},
            "description": {"field": "text"},
        },
    }
    return bars, means


def _seed_layer(rows: Sequence[ForestRow], metric: Metric, x: Spec) -> Spec:
    """A small dot per seed, below the bar, which would hide it."""
    values = [
        {
            "module": row.module,
            "mean": value,
            "text": f"{row.module}, seed {seed}: {metric.difference_text(value)}",
        }
        for row in rows
        for seed, value in _some_seeds(row.seeds)
    ]
    return {
        "data": {"values": values},
        "mark": {"type": "point", "size": 16, "yOffset": 9, "color": GREY, "opacity": 0.9},
        "encoding": {"x": x, "description": {"field": "text"}},
    }


def _some_seeds(seeds: Mapping[int, float]) -> list[tuple[int, float]]:
    """Choose the seeds to draw: all if they are few, else as many as can be told apart, from the
    smallest to the largest."""
    if len(seeds) <= MOST_DOTS:
        return list(seeds.items())
    ordered = sorted(seeds.items(), key=lambda item: item[1])
    return [ordered[place] for place in evenly_spread(len(ordered), MOST_DOTS)]


def _forest_text(row: ForestRow, metric: Metric) -> str:
    low, high = row.low, row.high
    spread = "" if low is None or high is None else f" {metric.interval_text(low, high)}"
    mean = metric.difference_text(row.mean)
    return f"{row.module}: {mean}{spread}, n = {len(row.seeds)}, {row.standing}"


_TALK: Spec = {
    "axis": {"labelFontSize": 16, "titleFontSize": 16, "titlePadding": 10, "labelLimit": 260},
    "title": {"anchor": "start", "fontSize": 20, "offset": 14, "subtitleFontSize": 15},
    "padding": 16,
}
_TALK_WIDTH, _TALK_STEP = 620, 46


def talk_figure(
    groups: Mapping[str, Sequence[ForestRow]], metric: Metric, title: str, subtitle: str
) -> Spec:
    """The differences for a talk: large letters, and what is read off beside each interval. One
    panel for each group by its name."""
    panels = []
    for name, rows in groups.items():
        x = {"value": _TALK_WIDTH + 14}
        said = {
            "data": {
                "values": [
                    {"module": row.module, "said": _said(row, metric), "colour": _ink(row)}
                    for row in rows
                ]
            },
            "mark": {"type": "text", "align": "left", "fontSize": 15, "aria": False},
            "encoding": {
                "x": x,
                "text": {"field": "said"},
                "color": {"field": "colour", "type": "nominal", "scale": None},
            },
        }
        panel = forest_figure(rows, metric, name if len(groups) > 1 else "")
        panels.append(
            {
                **panel,
                "width": _TALK_WIDTH,
                "height": {"step": _TALK_STEP},
                "layer": [*panel["layer"], said],
            }
        )
    heading = {"text": title, "subtitle": subtitle}
    if len(panels) == 1:
        return {**panels[0], "title": heading, "config": _TALK}
    return {"title": heading, "vconcat": panels, "config": _TALK}


def _said(row: ForestRow, metric: Metric) -> str:
    interval = (
        "" if row.low is None or row.high is None else metric.interval_text(row.low, row.high)
    )
    return minus(f"{metric.signed(row.mean)} {interval}  {row.standing}")


def _ink(row: ForestRow) -> str:
    return INK if _COLOURS[row.standing] == GREY else _COLOURS[row.standing]


@dataclass(frozen=True)
class MetricCurve:
    """The result's metric over epochs, over the seeds."""

    module: str
    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


_EPOCHS = Budget()


def curves_figure(
    curves: Sequence[MetricCurve],
    drops: Sequence[int],
    metric: Metric,
    title: str = "",
    part: str | None = "test",
    colours: Mapping[str, str] | None = None,
    width: int = HALF,
    budget: Budget = _EPOCHS,
) -> Spec:
    """Mean and range over seeds, with dashes where the learning rate drops; without `colours` the
    first curve is the plain network's. `part` is the part of the data, None where it is not
    known."""
    if colours is None:
        colours = row_colours((curve.module, n == 0) for n, curve in enumerate(curves))
    y = {
        "field": "mean",
        "type": "quantitative",
        "title": directed(metric.title + (f", {part} {metric.samples}" if part else ""), metric),
        "scale": {"zero": False},
    }
    colour = _curve_colour({curve.module: colours[curve.module] for curve in curves})
    both = {"x": _epochs(curves, budget), "color": colour}
    opacity = 0.2 if len(curves) < 4 else 0.1  # of many areas, one on the other, lighter ones
    ranges = {
        "mark": {"type": "area", "opacity": opacity, "aria": False},
        "encoding": {**both, "y": {**y, "field": "low"}, "y2": {"field": "high"}},
    }
    means = {
        "mark": {"type": "line", "strokeWidth": 1.7},
        "encoding": {**both, "y": y, "description": {"field": "text"}},
    }
    return {
        "title": title or None,
        "width": width,
        "height": 240,
        "data": {"values": _curve_values(curves, metric, budget)},
        "layer": [_drop_layer([budget.after(drop) for drop in drops]), ranges, means],
    }


def _epochs(curves: Sequence[MetricCurve], budget: Budget) -> Spec:
    return {
        "field": "epoch",
        "type": "quantitative",
        "title": budget.unit,
        "axis": {"grid": False, "tickMinStep": 1, **_whole_ticks(curves, budget)},
        "scale": {"nice": False, "zero": False},
    }


_FEW = 8
"""Epochs up to which each has its tick: of so few, Vega halves them whatever the least step is."""


def _whole_ticks(curves: Sequence[MetricCurve], budget: Budget) -> Spec:
    epochs = max((len(curve.mean) for curve in curves), default=0)
    ticks = [budget.after(epoch) for epoch in range(1, epochs + 1)]
    return {"values": ticks, "format": "d"} if epochs <= _FEW else {}


def _drop_layer(drops: Sequence[int]) -> Spec:
    return {
        "data": {"values": [{"drop": drop} for drop in drops]},
        "mark": {"type": "rule", "strokeDash": [3, 3], "color": GREY, "aria": False},
        "encoding": {"x": {"field": "drop", "type": "quantitative"}},
    }


def _curve_values(curves: Sequence[MetricCurve], metric: Metric, budget: Budget) -> list[Spec]:
    return [
        {
            "module": curve.module,
            "epoch": budget.after(epoch),
            "mean": mean,
            "low": curve.low[epoch - 1],
            "high": curve.high[epoch - 1],
            "text": f"{curve.module}: {metric.shown_text(curve.mean[-1])} after "
            f"{budget.unit} {budget.after(len(curve.mean))}",
        }
        for curve in curves
        for epoch, mean in enumerate(curve.mean, 1)
    ]


def _curve_colour(colours: Mapping[str, str]) -> Spec:
    return {
        "field": "module",
        "type": "nominal",
        "title": None,
        "sort": None,
        "scale": {"domain": [*colours], "range": [*colours.values()]},
        "legend": {"orient": "top", "symbolType": "circle", "symbolOpacity": 1, "columns": 4},
    }
