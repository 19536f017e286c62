"""The result of each module against what it costs in time, as it is and folded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from attnlab.lab.pages.figures import INK
from attnlab.page.plot import BLUE, GREY, Spec
from attnlab.page.scatter import scatter
from attnlab.results import Metric
from attnlab.results.metric import directed

Kind = Literal["plain", "gated", "folds", "folded"]
"""The plain backbone; gates that stay; gates that fold; the same network without them."""

_SHAPES = {"plain": "diamond", "gated": "square", "folds": "circle", "folded": "circle"}
_WORDS = {
    "plain": "no gate",
    "gated": "does not fold",
    "folds": "before folding",
    "folded": "folded",
}


@dataclass(frozen=True)
class CostPoint:
    """One network: what it costs and what it reaches."""

    module: str
    milliseconds: float
    result: float
    kind: Kind
    low: float | None = None
    """Of the interval of the time, in milliseconds; None for what the others are relative to."""
    high: float | None = None


def cost_figure(points: Sequence[CostPoint], metric: Metric, title: str = "") -> Spec:
    """Result against time with its interval; an arrow leads from a module to its folded form."""
    base = scatter(
        [_cost_value(point, metric) for point in points],
        ("ms", "time per image, ms"),
        ("result", directed(f"{metric.title}, mean over seeds", metric)),
        title,
        shape={"field": "shape", "type": "nominal", "scale": None},
    )
    mark = base["layer"][0]
    mark["encoding"] |= {
        "fill": {"field": "colour", "type": "nominal", "scale": None},
        "stroke": {"field": "edge", "type": "nominal", "scale": None},
    }
    folded = {p.module: p for p in points if p.kind == "folded"}
    ways = [
        {"ms": p.milliseconds, "result": p.result, "to": f.milliseconds, "end": f.result}
        for p in points
        if p.kind == "folds" and (f := folded.get(p.module)) is not None
    ]
    interval = {
        "mark": {"type": "rule", "strokeWidth": 1.6, "color": GREY, "aria": False},
        "encoding": {"x": {"field": "low", "type": "quantitative"}, "x2": {"field": "high"}},
    }
    way = {
        "data": {"values": ways},
        "mark": {"type": "rule", "strokeDash": [4, 3], "color": BLUE, "aria": False},
        "encoding": {"x2": {"field": "to"}, "y2": {"field": "end"}},
    }
    return {**base, "layer": [interval, *([way] if ways else []), *base["layer"]]}


def _cost_value(point: CostPoint, metric: Metric) -> Spec:
    time = point.milliseconds
    return {
        "module": f"{point.module}, folded" if point.kind == "folded" else point.module,
        "ms": time,
        "low": time if point.low is None else point.low,
        "high": time if point.high is None else point.high,
        "result": point.result,
        "shape": _SHAPES[point.kind],
        "colour": {"plain": INK, "folded": "white"}.get(point.kind, BLUE),
        "edge": INK if point.kind == "plain" else BLUE,
        "text": _text(point, metric),
    }


def _text(point: CostPoint, metric: Metric) -> str:
    interval = ""
    if point.low is not None and point.high is not None:
        interval = f" [{point.low:.3g}, {point.high:.3g}]"
    return (
        f"{point.module}, {_WORDS[point.kind]}: {metric.shown_text(point.result)} at "
        f"{point.milliseconds:.3g} ms{interval} per image"
    )
