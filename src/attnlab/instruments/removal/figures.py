"""What a network loses as steps are removed: plain data in, Vega-Lite out.

The data are what a `shorten.json` holds, as a dictionary.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from attnlab.page.plot import Spec

Measure = Literal["accuracy", "output_change"]
_TITLES = {"accuracy": "accuracy, %", "output_change": "relative change of the output"}


def shorten_figure(result: Mapping[str, Any], measure: Measure, title: str | None = None) -> Spec:
    """One line per ranking against the number of removed steps."""
    rows = [
        {
            "ranking": curve["ranking"],
            "removed": point["removed"],
            "value": point[measure],
            "text": f"{curve['ranking']}, {point['removed']} removed: {point[measure]:.3g}",
        }
        for curve in result["curves"]
        for point in curve["points"]
    ]
    names = [curve["ranking"] for curve in result["curves"]]
    most = max(row["removed"] for row in rows)
    x: Spec = {
        "field": "removed",
        "type": "quantitative",
        "title": "removed steps",
        "axis": {"tickMinStep": 1, "format": "d", "tickCount": min(most, 10)},
    }
    y: Spec = {
        "field": "value",
        "type": "quantitative",
        "title": _TITLES[measure],
        "scale": {"zero": measure == "output_change"},
    }
    colour = {"field": "ranking", "type": "nominal", "title": None, "sort": names}
    spec: Spec = {
        "width": 340,
        "height": 240,
        "data": {"values": rows},
        "encoding": {"color": colour, "x": x, "y": y},
        "layer": [
            {"mark": {"type": "line", "strokeWidth": 1.8}},
            {
                "mark": {"type": "point", "filled": True, "size": 34},
                "encoding": {"description": {"field": "text"}},
            },
        ],
    }
    return spec if title is None else {**spec, "title": title}
