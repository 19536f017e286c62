"""What a network loses as steps are removed, as Vega-Lite specifications."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from attnlab.page.plot import Spec
from attnlab.surgery.change import MEAN_IMAGE_CHANGE

if TYPE_CHECKING:
    from attnlab.instruments.removal.result import RemovalPoint, ShortenResult


def accuracy_figure(result: ShortenResult, title: str | None = None) -> Spec:
    """Accuracy against the number of removed steps, one line per ranking."""
    return _lines(result, lambda point: point.accuracy, "accuracy, %", title, zero=False)


def output_change_figure(result: ShortenResult, title: str | None = None) -> Spec:
    """The change of the output against the number of removed steps, one line per ranking."""
    change = MEAN_IMAGE_CHANGE
    return _lines(result, lambda point: point.output_change, change, title, zero=True)


def _lines(
    result: ShortenResult,
    value: Callable[[RemovalPoint], float | None],
    heading: str,
    title: str | None,
    *,
    zero: bool,
) -> Spec:
    rows = [
        {
            "ranking": curve.ranking,
            "removed": point.removed,
            "value": value(point),
            "text": f"{curve.ranking}, {point.removed} removed: {value(point):.3g}",
        }
        for curve in result.curves
        for point in curve.points
    ]
    most = max(point.removed for curve in result.curves for point in curve.points)
    axis = {"tickMinStep": 1, "format": "d", "tickCount": min(most, 10)}
    amount = {"type": "quantitative"}
    names = [curve.ranking for curve in result.curves]
    spec: Spec = {
        "width": 340,
        "height": 240,
        "data": {"values": rows},
        "encoding": {
            "color": {"field": "ranking", "type": "nominal", "title": None, "sort": names},
            "x": {"field": "removed", **amount, "title": "removed steps", "axis": axis},
            "y": {"field": "value", **amount, "title": heading, "scale": {"zero": zero}},
        },
        "layer": [
            {"mark": {"type": "line", "strokeWidth": 1.8}},
            {
                "mark": {"type": "point", "filled": True, "size": 34},
                "encoding": {"description": {"field": "text"}},
            },
        ],
    }
    return spec if title is None else {**spec, "title": title}
