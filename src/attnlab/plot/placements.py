"""Results against the number of gates, by how their places were chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attnlab.plot.render import GREY, Spec

_RANDOM = "random"


def placements_figure(points: Sequence[Mapping[str, Any]], title: str | list[str]) -> Spec:
    """Points with `row`, `strategy`, `sites`, `delta`, `low`, `high` and `text`: strategies side by
    side at each number of gates with their intervals, random ones as ticks."""
    strategies = list(dict.fromkeys(p["strategy"] for p in points if p["strategy"] != _RANDOM))
    drawn = any(point["strategy"] == _RANDOM for point in points)
    values = [
        {
            **point,
            "low": point["delta"] if point["low"] is None else point["low"],
            "high": point["delta"] if point["high"] is None else point["high"],
        }
        for point in points
    ]
    order = [*strategies, *([_RANDOM] if drawn else [])]
    x = {"field": "sites", "type": "ordinal", "title": "number of gates", "axis": {"labelAngle": 0}}
    offset = {"field": "strategy", "type": "nominal", "sort": order}
    y = {"field": "delta", "type": "quantitative", "title": title}
    named = {"filter": f"datum.strategy != '{_RANDOM}'"}
    colour = {
        "field": "strategy",
        "type": "nominal",
        "title": None,
        "scale": {"domain": strategies},
    }
    return {
        "width": {"step": 26},
        "height": 260,
        "data": {"values": values},
        "encoding": {"x": x, "xOffset": offset, "description": {"field": "text"}},
        "layer": [
            {
                "transform": [{"filter": f"datum.strategy == '{_RANDOM}'"}],
                "mark": {"type": "tick", "color": GREY, "thickness": 2, "width": 18},
                "encoding": {"y": y},
            },
            {
                "transform": [named],
                "mark": {"type": "rule", "strokeWidth": 2, "opacity": 0.6, "aria": False},
                "encoding": {
                    "y": {"field": "low", "type": "quantitative"},
                    "y2": {"field": "high"},
                    "color": colour,
                },
            },
            {
                "transform": [named],
                "mark": {"type": "point", "size": 60},
                "encoding": {"y": y, "color": colour},
            },
        ],
    }
