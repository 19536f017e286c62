"""What a network loses as steps are removed, as Vega-Lite specifications."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from attnlab.page.plot import Spec
from attnlab.surgery.words import MEAN_IMAGE_CHANGE

if TYPE_CHECKING:
    from attnlab.instruments.removal.result import RemovalCurve, RemovalPoint


def accuracy_figure(curves: Sequence[RemovalCurve], title: str | None = None) -> Spec:
    """Accuracy against the number of removed steps, one line per ranking."""
    return _lines(curves, lambda point: point.accuracy, "accuracy, %", title, zero=False)


def output_change_figure(curves: Sequence[RemovalCurve], title: str | None = None) -> Spec:
    """The change of the output against the number of removed steps, one line per ranking."""
    change = MEAN_IMAGE_CHANGE
    return _lines(curves, lambda point: point.output_change, change, title, zero=True)


def _lines(
    curves: Sequence[RemovalCurve],
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
        for curve in curves
        for point in curve.points
    ]
    most = max(point.removed for curve in curves for point in curve.points)
    axis = {"tickMinStep": 1, "format": "d", "tickCount": min(most, 10)}
    amount = {"type": "quantitative"}
    names = [curve.ranking for curve in curves]
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
