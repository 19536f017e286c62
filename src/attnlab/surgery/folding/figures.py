"""Figures of a fold: the range of each gate, and what it costs to make gates constant."""

from __future__ import annotations

from collections.abc import Sequence

from attnlab.page.plot import BLUE, FULL, GREY, ORANGE, Spec
from attnlab.surgery.folding.curve import WORDS, Curve
from attnlab.surgery.folding.receipt import SiteRow


def gate_range_figure(rows: Sequence[SiteRow]) -> Spec:
    """Draw the range of each folded gate, from its smallest to its largest value over its
    channels."""
    names = list(dict.fromkeys(row.site for row in rows))
    values = [
        {
            "site": row.site,
            "low": row.smallest,
            "high": row.largest,
            "text": f"{row.site}: gate {row.smallest:.3g} to {row.largest:.3g}",
        }
        for row in rows
    ]
    x = {"type": "quantitative", "title": "gate, over channels", "axis": {"tickCount": 6}}
    axis = {"domain": False, "ticks": False, "labelLimit": 220}
    y = {"field": "site", "type": "nominal", "sort": names, "title": None, "axis": axis}
    return {
        "width": FULL,
        "height": {"step": 18},
        "data": {"values": values},
        "mark": {"type": "bar", "height": 8, "cornerRadius": 3, "color": BLUE},
        "encoding": {
            "y": y,
            "x": {**x, "field": "low"},
            "x2": {"field": "high"},
            "description": {"field": "text"},
        },
    }


def curve_figure(curve: Curve) -> Spec:
    """Predicted with its bound, and measured, against the number of gates that are constant."""
    x = {
        "field": "gates",
        "type": "quantitative",
        "title": "gates made constant",
        "axis": {"tickMinStep": 1, "grid": False},
        "scale": {"domain": [0, len(curve.points)]},
    }
    y = {"field": "cost", "type": "quantitative", "title": WORDS[curve.cost]}
    colour = {
        "field": "kind",
        "type": "nominal",
        "title": None,
        "scale": {"domain": ["predicted", "measured, held out"], "range": [BLUE, ORANGE]},
        "legend": {"orient": "top"},
    }
    layers: list[Spec] = [
        {
            "transform": [{"filter": "datum.kind == 'predicted'"}],
            "mark": {"type": "area", "opacity": 0.15, "color": BLUE, "aria": False},
            "encoding": {"x": x, "y": y, "y2": {"field": "bound"}},
        },
        {
            "mark": {"type": "line", "point": True},
            "encoding": {"x": x, "y": y, "color": colour, "description": {"field": "text"}},
        },
    ]
    if isinstance(curve.budget, int | float):
        rule = {"type": "rule", "strokeDash": [4, 3], "color": GREY, "aria": False}
        data = {"values": [{"cost": curve.budget}]}
        layers.append({"data": data, "mark": rule, "encoding": {"y": y}})
    return {"width": FULL, "height": 220, "data": {"values": _points(curve)}, "layer": layers}


def _points(curve: Curve) -> list[dict[str, object]]:
    return [
        {
            "gates": number,
            "cost": cost,
            "bound": point.bound,
            "kind": kind,
            "text": f"{number} gates, {kind}: {cost:.4f}",
        }
        for number, point in enumerate(curve.points, 1)
        for kind, cost in (("predicted", point.predicted), ("measured, held out", point.measured))
    ]
