"""The confusion of classes, as Vega-Lite."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attnlab.page.plot import Spec

_NUMBERED = 15
"""Classes up to which every field has room for its number."""


def confusion_figure(names: Sequence[str], confusion: Sequence[Sequence[int]]) -> Spec:
    """True class × predicted class; every field says its counts to those who see no picture."""
    axis = {"domain": False, "ticks": False, "labelLimit": 110}
    step = 30 if len(names) <= _NUMBERED else 20
    order = list(names)
    y = {"field": "true", "type": "nominal", "sort": order, "title": "true class", "axis": axis}
    x = {
        **y,
        "axis": {**axis, "labelAngle": 0 if max(map(len, names)) < 4 else -90},
        "field": "predicted",
        "title": "predicted class",
    }
    colour = {
        "field": "share",
        "type": "quantitative",
        "title": "share of the true class",
        # Rare confusions are what one looks for: a root makes them visible.
        "scale": {"type": "sqrt", "scheme": "viridis", "domain": [0, 1]},
        "legend": {"orient": "top", "direction": "horizontal", "gradientLength": 150},
    }
    number = {
        "mark": {"type": "text", "fontSize": 10, "aria": False},
        "encoding": {
            "text": {"field": "number"},
            # Not a colour of the page: it lies on the colours of the map.
            "color": {"condition": {"test": "datum.share > 0.4", "value": "#111"}, "value": "#eee"},
        },
    }
    fields = {"mark": "rect", "encoding": {"color": colour, "description": {"field": "text"}}}
    return {
        "width": {"step": step},
        "height": {"step": step},
        "data": {"values": _fields(names, confusion)},
        "encoding": {"x": x, "y": y},
        "layer": [fields, *([number] if len(names) <= _NUMBERED else [])],
    }


def _fields(names: Sequence[str], confusion: Sequence[Sequence[int]]) -> list[Spec]:
    counts = np.array(confusion, dtype=np.float64)
    totals = np.maximum(counts.sum(1, keepdims=True), 1)
    return [
        {
            "true": names[a],
            "predicted": names[b],
            "share": float(counts[a, b] / totals[a, 0]),
            "number": f"{100 * counts[a, b] / totals[a, 0]:.0f}" if counts[a, b] else "",
            "text": f"{names[a]} taken for {names[b]}: {int(counts[a, b])} of {int(totals[a, 0])}",
        }
        for a in range(len(names))
        for b in range(len(names))
    ]
