"""Figures of a study: plain data in, Vega-Lite specification out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from attnlab.plot.render import BLUE, GREY, ORANGE, RED, Spec
from attnlab.plot.scatter import scatter

Standing = Literal["gain", "loss", "within noise", "before correction only", "no interval"]
"""`before correction only`: zero is outside of the module's own interval, but among so many modules
that happens by chance."""

INK = "#1b2130"
CURVES = [GREY, BLUE, ORANGE]
_COLOURS = {
    "gain": BLUE,
    "loss": RED,
    "within noise": GREY,
    "before correction only": BLUE,
    "no interval": GREY,
}


@dataclass(frozen=True)
class ForestRow:
    """One module against the plain backbone, in points of percent."""

    module: str
    mean: float
    low: float | None
    high: float | None
    standing: Standing
    seeds: Mapping[int, float]


def forest_figure(rows: Sequence[ForestRow], title: str = "") -> Spec:
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
            "text": _forest_text(row),
        }
        for row in rows
    ]
    seeds = [
        {"module": row.module, "mean": value, "text": f"{row.module}, seed {seed}: {value:+.2f} pt"}
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
    x = {
        "field": "mean",
        "type": "quantitative",
        "title": "Δ top-1, paired by seed (pt)",
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


def _forest_text(row: ForestRow) -> str:
    spread = "" if row.low is None else f" [{row.low:+.2f}, {row.high:+.2f}]"
    return f"{row.module}: {row.mean:+.2f} pt{spread}, n = {len(row.seeds)}, {row.standing}"


@dataclass(frozen=True)
class CostPoint:
    """One module: what it costs and what it reaches."""

    module: str
    milliseconds: float
    accuracy: float
    folds: bool


def cost_figure(points: Sequence[CostPoint], title: str = "") -> Spec:
    """Accuracy against latency; a round mark folds away, so it costs nothing once deployed."""
    values = [
        {
            "module": p.module,
            "ms": p.milliseconds,
            "accuracy": p.accuracy,
            "shape": "circle" if p.folds else "square",
            "text": f"{p.module}: {p.accuracy:.2f} % at {p.milliseconds:.3g} ms per image, "
            + ("folds exactly" if p.folds else "does not fold"),
        }
        for p in points
    ]
    return scatter(
        values,
        ("ms", "latency, ms / image"),
        ("accuracy", "top-1 %, mean over seeds"),
        title,
        shape={"field": "shape", "type": "nominal", "scale": None},
    )


@dataclass(frozen=True)
class Curve:
    """Test accuracy over epochs, over the seeds."""

    module: str
    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


def curves_figure(curves: Sequence[Curve], drops: Sequence[int], title: str = "") -> Spec:
    """Mean and range over seeds of the test accuracy, with dashes where the learning rate drops."""
    values = [
        {
            "module": curve.module,
            "epoch": epoch,
            "mean": mean,
            "low": curve.low[epoch - 1],
            "high": curve.high[epoch - 1],
            "text": f"{curve.module}: {curve.mean[-1]:.2f} % after epoch {len(curve.mean)}",
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
        "title": "test top-1 %",
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
