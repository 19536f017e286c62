"""Figures of a study: plain data in, Vega-Lite specification out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from attnlab.plot.render import BLUE, GREY, ORANGE, RED, Spec
from attnlab.plot.scatter import scatter
from attnlab.stored import Metric

Standing = Literal[
    "gain", "loss", "within noise", "before correction only", "no interval", "cannot tell"
]
"""`before correction only`: zero is outside of the module's own interval, but among so many modules
that happens by chance. `cannot tell`: there is an interval, but no verdict may be given."""

INK = "#1b2130"
CURVES = [GREY, BLUE, ORANGE]
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


def directed(title: str, metric: Metric) -> str | list[str]:
    """The title of an axis; on a second line where less is better."""
    return [title, metric.direction] if metric.direction else title


def forest_figure(rows: Sequence[ForestRow], metric: Metric, title: str = "") -> Spec:
    """Paired differences: a dot per seed, the mean, and its interval; grey where zero is inside."""
    names = [row.module for row in rows]
    interval = [
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
    seeds = [
        {
            "module": row.module,
            "mean": value,
            "text": f"{row.module}, seed {seed}: {metric.difference_text(value)}",
        }
        for row in rows
        for seed, value in row.seeds.items()
    ]
    y = {
        "field": "module",
        "type": "nominal",
        "sort": names,
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
    colour = {"field": "colour", "type": "nominal", "scale": None}
    text = {"field": "text"}
    return {
        "title": title or None,
        "width": 230,
        "height": {"step": 27},
        "encoding": {"y": y},
        "layer": [
            {
                "data": {"values": [{"zero": 0}]},
                "mark": {"type": "rule", "strokeDash": [3, 2], "color": INK, "aria": False},
                "encoding": {"x": {"field": "zero", "type": "quantitative"}, "y": None},
            },
            {
                "data": {"values": interval},
                "mark": {"type": "rule", "strokeWidth": 2.2, "aria": False},
                "encoding": {
                    "x": {**x, "field": "low"},
                    "x2": {"field": "high"},
                    "color": colour,
                },
            },
            {
                "data": {"values": seeds},
                # Below the bar, which would hide them.
                "mark": {
                    "type": "point",
                    "size": 16,
                    "yOffset": 9,
                    "color": GREY,
                    "opacity": 0.9,
                },
                "encoding": {"x": x, "description": text},
            },
            {
                "data": {"values": interval},
                "mark": {"type": "point", "size": 62, "opacity": 1, "strokeWidth": 2},
                "encoding": {
                    "x": x,
                    "stroke": colour,
                    "fill": {
                        "condition": {"test": "datum.hollow", "value": "white"},
                        "field": "colour",
                        "type": "nominal",
                        "scale": None,
                    },
                    "description": text,
                },
            },
        ],
    }


def _forest_text(row: ForestRow, metric: Metric) -> str:
    low, high = row.low, row.high
    spread = "" if low is None or high is None else f" {metric.interval_text(low, high)}"
    mean = metric.difference_text(row.mean)
    return f"{row.module}: {mean}{spread}, n = {len(row.seeds)}, {row.standing}"


@dataclass(frozen=True)
class CostPoint:
    """One module: what it costs and what it reaches."""

    module: str
    milliseconds: float
    result: float
    folds: bool


def cost_figure(points: Sequence[CostPoint], metric: Metric, title: str = "") -> Spec:
    """Result against latency; a round mark folds away, so it costs nothing once deployed."""
    values = [
        {
            "module": p.module,
            "ms": p.milliseconds,
            "result": p.result,
            "shape": "circle" if p.folds else "square",
            "text": f"{p.module}: {metric.shown_text(p.result)} at {p.milliseconds:.3g} ms per "
            f"image, {'folds exactly' if p.folds else 'does not fold'}",
        }
        for p in points
    ]
    return scatter(
        values,
        ("ms", "latency, ms / image"),
        ("result", directed(f"{metric.title}, mean over seeds", metric)),
        title,
        shape={"field": "shape", "type": "nominal", "scale": None},
    )


@dataclass(frozen=True)
class Curve:
    """The result's metric over epochs, over the seeds."""

    module: str
    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


def curves_figure(
    curves: Sequence[Curve], drops: Sequence[int], metric: Metric, title: str = ""
) -> Spec:
    """Mean and range over seeds on the test images, with dashes where the learning rate drops."""
    values = [
        {
            "module": curve.module,
            "epoch": epoch,
            "mean": mean,
            "low": curve.low[epoch - 1],
            "high": curve.high[epoch - 1],
            "text": f"{curve.module}: {metric.shown_text(curve.mean[-1])} after epoch "
            f"{len(curve.mean)}",
        }
        for curve in curves
        for epoch, mean in enumerate(curve.mean, 1)
    ]
    x = {
        "field": "epoch",
        "type": "quantitative",
        "title": "epoch",
        "axis": {"grid": False, "tickMinStep": 1},
        "scale": {"nice": False, "zero": False},
    }
    y = {
        "field": "mean",
        "type": "quantitative",
        "title": directed(f"{metric.title}, test images", metric),
        "scale": {"zero": False},
    }
    colour = {
        "field": "module",
        "type": "nominal",
        "title": None,
        "sort": None,
        "scale": {"domain": [c.module for c in curves], "range": CURVES[: len(curves)]},
        "legend": {"orient": "top", "symbolType": "circle", "symbolOpacity": 1},
    }
    return {
        "title": title or None,
        "width": 245,
        "height": 200,
        "data": {"values": values},
        "layer": [
            {
                "data": {"values": [{"drop": drop} for drop in drops]},
                "mark": {"type": "rule", "strokeDash": [3, 3], "color": GREY, "aria": False},
                "encoding": {"x": {"field": "drop", "type": "quantitative"}},
            },
            {
                "mark": {"type": "area", "opacity": 0.22, "aria": False},
                "encoding": {
                    "x": x,
                    "y": {**y, "field": "low"},
                    "y2": {"field": "high"},
                    "color": colour,
                },
            },
            {
                "mark": {"type": "line", "strokeWidth": 1.7},
                "encoding": {"x": x, "y": y, "color": colour, "description": {"field": "text"}},
            },
        ],
    }
