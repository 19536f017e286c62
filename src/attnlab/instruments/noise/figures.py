"""A network's result against the strength of a noise, as Vega-Lite."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnlab.page.plot import Spec

if TYPE_CHECKING:
    from attnlab.instruments.noise.result import NoiseCurve, NoisePoint, NoiseResult

_AXES = {
    "random": "σ of the noise in every norm",
    "constant": "(a, b) of the noise in every norm",
    "batch": "images per batch whose statistics are used",
}


def noise_figure(result: NoiseResult) -> Spec:
    """Mean over draws with its interval; a dashed line is the network without noise."""
    metric, kind = result.metric, result.kind
    rows = [_values(curve, point) for curve in result.networks for point in curve.points]
    clean = [{"network": curve.network, "clean": curve.clean} for curve in result.networks]
    unit = f", {metric.unit}" if metric.unit else ""
    y: Spec = {"type": "quantitative", "title": f"{metric.label}{unit}", "scale": {"zero": False}}
    x: Spec = {"field": "strength", "type": "quantitative", "title": _AXES[kind]}
    if kind == "constant":
        x |= {"type": "nominal", "sort": None, "axis": {"labelAngle": 0}}
    elif kind == "batch":
        x |= {"scale": {"type": "log", "base": 2}}
    mean = {"x": x, "y": {**y, "field": "mean"}}
    return {
        "width": 460,
        "height": 260,
        "data": {"values": rows},
        "encoding": {"color": {"field": "network", "type": "nominal", "title": None, "sort": None}},
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
            {"mark": {"type": "line"}, "encoding": mean},
            {
                "mark": {"type": "point", "filled": True, "size": 40},
                "encoding": {**mean, "description": {"field": "text"}},
            },
        ],
    }


def _values(curve: NoiseCurve, point: NoisePoint) -> Spec:
    strength = point.strength
    shown = strength[0] if len(strength) == 1 else f"({strength[0]:g}, {strength[1]:g})"
    return {
        "network": curve.network,
        "strength": shown,
        "mean": point.mean,
        "low": point.mean if point.low is None else point.low,
        "high": point.mean if point.high is None else point.high,
        "text": f"{curve.network}, {point.label}: {point.mean:.2f}",
    }
