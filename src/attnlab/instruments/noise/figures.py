"""A network's result against the strength of a noise: plain data in, Vega-Lite out.

The data are what a `noise.json` holds, as a dictionary.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attnlab.page.plot import Spec

_AXES = {
    "random": "σ of the noise in every norm",
    "constant": "(a, b) of the noise in every norm",
    "batch": "images per batch whose statistics are used",
}


def noise_figure(result: Mapping[str, Any]) -> Spec:
    """Mean over draws with its interval; a dashed line is the network without noise."""
    metric, kind = result["metric"], result["kind"]
    rows, clean = [], []
    for curve in result["networks"]:
        clean.append({"network": curve["network"], "clean": curve["clean"]})
        for point in curve["points"]:
            strength = point["strength"]
            shown = f"({strength[0]:g}, {strength[1]:g})" if kind == "constant" else strength[0]
            low, high = point["low"], point["high"]
            rows.append(
                {
                    "network": curve["network"],
                    "strength": shown,
                    "mean": point["mean"],
                    "low": point["mean"] if low is None else low,
                    "high": point["mean"] if high is None else high,
                    "text": f"{curve['network']}, {point['label']}: {point['mean']:.2f}",
                }
            )
    unit = f", {metric['unit']}" if metric["unit"] else ""
    y: Spec = {
        "type": "quantitative",
        "title": f"{metric['label']}{unit}",
        "scale": {"zero": False},
    }
    x: Spec = {"field": "strength", "type": "quantitative", "title": _AXES[kind]}
    if kind == "constant":
        x |= {"type": "nominal", "sort": None, "axis": {"labelAngle": 0}}
    elif kind == "batch":
        x |= {"scale": {"type": "log", "base": 2}}
    colour = {"field": "network", "type": "nominal", "title": None, "sort": None}
    return {
        "width": 460,
        "height": 260,
        "data": {"values": rows},
        "encoding": {"color": colour},
        "layer": [
            {
                "data": {"values": clean},
                "mark": {"type": "rule", "strokeDash": [4, 3], "opacity": 0.7},
                "encoding": {"y": {**y, "field": "clean"}},
            },
            {
                "mark": {"type": "rule", "strokeWidth": 2, "opacity": 0.6},
                "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}},
            },
            {"mark": {"type": "line"}, "encoding": {"x": x, "y": {**y, "field": "mean"}}},
            {
                "mark": {"type": "point", "filled": True, "size": 40},
                "encoding": {
                    "x": x,
                    "y": {**y, "field": "mean"},
                    "description": {"field": "text"},
                },
            },
        ],
    }
