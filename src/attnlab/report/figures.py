"""Figures of a study: plain data in, Vega-Lite specification out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from attnlab.report.render import BLUE, GREY, ORANGE, RED, Spec

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
        "height": {"step": 21},
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
                "mark": {"type": "point", "size": 12, "color": GREY, "opacity": 0.9},
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
    return _scatter(
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
        "axis": {"grid": False},
        "scale": {"nice": False},
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


def heat_figure(
    cells: Sequence[tuple[str, str, float]],
    *,
    legend: str,
    x_title: str = "residual block (stage.block)",
    title: str = "",
    limit: float | None = None,
    scheme: str = "viridis",
) -> Spec:
    """(row, column, value) as a heat map, rows and columns in the order given."""
    rows = list(dict.fromkeys(row for row, _, _ in cells))
    columns = list(dict.fromkeys(column for _, column, _ in cells))
    values = [
        {
            "row": row,
            "column": column,
            "value": value,
            "text": f"{row}, block {column}: {legend} {value:.3g}",
        }
        for row, column, value in cells
    ]
    scale: Spec = {"scheme": scheme}
    if limit is not None:
        scale |= {"domain": [0, limit], "clamp": True}
    return {
        "title": title or None,
        "width": {"step": max(12, min(26, 700 // max(len(columns), 1)))},
        "height": {"step": 20},
        "data": {"values": values},
        "mark": {"type": "rect", "stroke": "white", "strokeOpacity": 0.15, "strokeWidth": 1},
        "encoding": {
            "x": {
                "field": "column",
                "type": "nominal",
                "sort": columns,
                "title": x_title,
                "axis": {
                    "domain": False,
                    "labelAngle": 0 if len(columns) < 28 else -90,
                    "labelOverlap": "greedy",
                },
            },
            "y": {
                "field": "row",
                "type": "nominal",
                "sort": rows,
                "title": None,
                "axis": {"domain": False, "ticks": False, "labelLimit": 130},
            },
            "color": {
                "field": "value",
                "type": "quantitative",
                "title": legend,
                "scale": scale,
                "legend": {"gradientLength": max(60, min(150, 20 * len(rows) - 20))},
            },
            "description": {"field": "text"},
        },
    }


def stiffness_figure(points: Sequence[tuple[str, float, float]], title: str = "") -> Spec:
    """(module, TNS, accuracy), one point each."""
    values = [
        {
            "module": module,
            "tns": tns,
            "accuracy": accuracy,
            "text": f"{module}: TNS {tns:.4g}, {accuracy:.2f} %",
        }
        for module, tns, accuracy in points
    ]
    y = ("accuracy", "top-1 %, mean over seeds")
    return _scatter(values, ("tns", "TNS, mean over seeds"), y, title)


def sites_figure(points: Sequence[tuple[str, int, float, float | None, float | None]]) -> Spec:
    """(row, number of gates, Δ, low, high): do a few gates do as well as all of them?"""
    values = [
        {
            "row": row,
            "gates": gates,
            "delta": delta,
            "low": delta if low is None else low,
            "high": delta if high is None else high,
            "text": f"{row}: {gates} gates, {delta:+.2f} pt",
        }
        for row, gates, delta, low, high in points
    ]
    base = _scatter(values, ("gates", "number of gates"), ("delta", "Δ top-1 (pt)"), "")
    interval = {
        "mark": {"type": "rule", "strokeWidth": 2, "color": GREY, "aria": False},
        "encoding": {
            "y": {"field": "low", "type": "quantitative"},
            "y2": {"field": "high"},
        },
    }
    return {**base, "layer": [interval, *base["layer"]]}


def counts_figure(counts: Sequence[tuple[str, int]], total: int) -> Spec:
    """(block, number of runs of which it is the stiffest) as bars."""
    values = [
        {"block": block, "runs": runs, "text": f"block {block}: stiffest of {runs} of {total} runs"}
        for block, runs in counts
    ]
    return {
        "width": {"step": max(12, min(26, 700 // max(len(counts), 1)))},
        "height": 130,
        "data": {"values": values},
        "mark": "bar",
        "encoding": {
            "x": {
                "field": "block",
                "type": "nominal",
                "sort": None,
                "title": "residual block (stage.block)",
                "axis": {
                    "labelAngle": 0 if len(counts) < 28 else -90,
                    "labelOverlap": "greedy",
                },
            },
            "y": {
                "field": "runs",
                "type": "quantitative",
                "title": "runs",
                "axis": {"tickMinStep": 1},
            },
            "description": {"field": "text"},
        },
    }


def _scatter(
    values: Sequence[Spec],
    x: tuple[str, str],
    y: tuple[str, str],
    title: str,
    shape: Spec | None = None,
) -> Spec:
    label = "row" if "row" in (values[0] if values else {}) else "module"
    mark = {"type": "point", "size": 70, "opacity": 0.9, "color": BLUE}
    encoding: Spec = {"description": {"field": "text"}}
    if shape is not None:
        encoding["shape"] = shape
    near = {"zero": False, "nice": True, "padding": 14}
    sides = _label_sides([(value[x[0]], value[y[0]]) for value in values])
    placed = [{**value, "side": side} for value, side in zip(values, sides, strict=True)]
    labels: list[Spec] = [
        {
            "transform": [{"filter": f"datum.side == '{side}'"}],
            "mark": where | {"type": "text", "fontSize": 10, "aria": False},
            "encoding": {"text": {"field": label}},
        }
        for side, where in _SIDES.items()
        if side in sides
    ]
    return {
        "title": title or None,
        "width": 245,
        "height": 200,
        "data": {"values": placed},
        "encoding": {
            "x": {"field": x[0], "type": "quantitative", "title": x[1], "scale": near},
            "y": {"field": y[0], "type": "quantitative", "title": y[1], "scale": near},
        },
        "layer": [{"mark": mark, "encoding": encoding}, *labels],
    }


_SIDES: dict[str, Spec] = {
    "above": {"dy": -10},
    "below": {"dy": 12},
    "right": {"dx": 8, "align": "left"},
    "left": {"dx": -8, "align": "right"},
}
_OFFSETS = {"above": (0.0, 0.05), "below": (0.0, -0.06), "right": (0.1, 0.0), "left": (-0.1, 0.0)}


def _label_sides(points: Sequence[tuple[float, float]]) -> list[str]:
    """For each point the side on which its label is clear of points and earlier labels, or the one
    with most room."""
    if not points:
        return []
    spans = [max(v) - min(v) or 1.0 for v in zip(*points, strict=True)]
    scaled = [(x / spans[0], y / spans[1]) for x, y in points]
    taken: list[tuple[float, float]] = []
    sides = []
    for number, (x, y) in enumerate(scaled):
        others = scaled[:number] + scaled[number + 1 :] + taken
        places = {side: (x + dx, y + dy) for side, (dx, dy) in _OFFSETS.items()}
        room = {side: _room(place, others) for side, place in places.items()}
        side = next(
            (side for side, clear in room.items() if clear > 1), max(room, key=room.__getitem__)
        )
        taken.append(places[side])
        sides.append(side)
    return sides


def _room(place: tuple[float, float], others: Sequence[tuple[float, float]]) -> float:
    """Distance to the nearest of `others` in sizes of a label, which is wider than high."""
    distances = [max(abs(place[0] - a) / 0.13, abs(place[1] - b) / 0.055) for a, b in others]
    return min(distances, default=2.0)
