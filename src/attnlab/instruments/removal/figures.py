"""What a network loses as steps are removed, as Vega-Lite specifications."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from attnlab.page.plot import FULL, GREY, HALF, Spec
from attnlab.surgery.words import MEAN_IMAGE_CHANGE

if TYPE_CHECKING:
    from attnlab.instruments.removal.result import RemovalCurve, RemovalPoint, StepAlone


def accuracy_figure(
    curves: Sequence[RemovalCurve], asked: int | None = None, title: str | None = None
) -> Spec:
    """Accuracy against the number of removed steps, one line per ranking; dashes at the number
    that was asked for."""
    return _lines(curves, lambda point: point.accuracy, "accuracy, %", asked, title, zero=False)


def output_change_figure(
    curves: Sequence[RemovalCurve], asked: int | None = None, title: str | None = None
) -> Spec:
    """The change of the output against the number of removed steps, one line per ranking; dashes
    at the number that was asked for."""
    change = MEAN_IMAGE_CHANGE
    return _lines(curves, lambda point: point.output_change, change, asked, title, zero=True)


def text_loss_figure(
    curves: Sequence[RemovalCurve], asked: int | None = None, title: str | None = None
) -> Spec:
    """The loss on a text against the number of removed steps, one line per ranking; dashes at the
    number that was asked for. Perplexity would leave all but the last steps on the axis."""
    heading = "loss, nats per token"
    return _lines(curves, lambda point: point.loss, heading, asked, title, zero=False)


def alone_figure(steps: Sequence[StepAlone]) -> Spec:
    """A bar per step: the change of the output when it is left out alone; none for a step that
    cannot be removed."""
    values = [
        {
            "step": step.label,
            "change": step.output_change,
            "text": f"{step.label} ({step.name}): {step.reason or 'cannot be removed'}"
            if step.output_change is None
            else f"{step.label} ({step.name}) left out: {step.output_change:.3g}",
        }
        for step in steps
    ]
    few = len(steps) * 24 <= FULL
    change = {"field": "change", "type": "quantitative", "title": MEAN_IMAGE_CHANGE}
    return {
        "width": FULL if few else {"step": 14},
        "height": 170,
        "data": {"values": values},
        "mark": "bar",
        "encoding": {
            "x": {
                "field": "step",
                "type": "nominal",
                "sort": None,
                "title": "residual step (stage.block) that is left out alone",
                "axis": {"labelAngle": 0 if few else -90, "labelOverlap": "greedy"},
            },
            "y": change,
            "description": {"field": "text"},
        },
    }


def _lines(
    curves: Sequence[RemovalCurve],
    value: Callable[[RemovalPoint], float | None],
    heading: str,
    asked: int | None,
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
    dots = {"type": "point", "filled": True, "size": 34}
    spec: Spec = {
        "width": HALF,
        "height": 240,
        "data": {"values": rows},
        "encoding": {
            "color": _ranking_colour([curve.ranking for curve in curves]),
            "x": {"field": "removed", **amount, "title": "removed steps", "axis": axis},
            "y": {"field": "value", **amount, "title": heading, "scale": {"zero": zero}},
        },
        "layer": [
            {"mark": {"type": "line", "strokeWidth": 1.8}},
            {"mark": dots, "encoding": {"description": {"field": "text"}}},
        ],
    }
    if asked is not None:
        spec["layer"] = [_asked_layer(asked), *spec["layer"]]
    return spec if title is None else {**spec, "title": title}


def _ranking_colour(names: Sequence[str]) -> Spec:
    return {
        "field": "ranking",
        "type": "nominal",
        "title": None,
        "sort": names,
        "scale": {"domain": names},
        "legend": {"orient": "top", "columns": 5},
    }


def _asked_layer(asked: int) -> Spec:
    """Dashes at the number that was asked for."""
    return {
        "data": {"values": [{"removed": asked, "text": f"asked for: {asked}"}]},
        "mark": {"type": "rule", "strokeDash": [3, 3], "color": GREY},
        "encoding": {
            "x": {"field": "removed", "type": "quantitative"},
            "y": None,
            "color": None,
            "description": {"field": "text"},
        },
    }
