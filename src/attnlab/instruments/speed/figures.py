"""Time relative to the plain network, as Vega-Lite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attnlab.page.plot import Spec

if TYPE_CHECKING:
    from attnlab.instruments.speed.result import SpeedRow


def speed_figure(rows: Sequence[SpeedRow]) -> Spec:
    """A line per network: the ratio with its interval, in one colour per kind of images."""
    values = [
        {
            "network": row.label,
            "images": str(row.images),
            "ratio": row.ratio,
            "low": row.low,
            "high": row.high,
            "text": f"{row.label}, {row.images}: {row.ratio:.3f}",
        }
        for row in rows
    ]
    x: Spec = {
        "type": "quantitative",
        "title": "time relative to the plain network",
        "scale": {"zero": False},
    }
    shift = {"field": "images", "sort": None}
    y = {"field": "network", "type": "nominal", "sort": None, "title": None}
    colour = {"field": "images", "type": "nominal", "sort": None, "title": None}
    return {
        "width": 460,
        "height": {"step": 26},
        "data": {"values": values},
        "encoding": {"y": y, "yOffset": shift, "color": colour},
        "layer": [
            {
                "mark": {"type": "rule", "strokeWidth": 2, "opacity": 0.6},
                "encoding": {"x": {**x, "field": "low"}, "x2": {"field": "high"}},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 40},
                "encoding": {"x": {**x, "field": "ratio"}, "description": {"field": "text"}},
            },
        ],
    }
