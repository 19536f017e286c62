"""Figures of a stiffness measurement: result in, Vega-Lite specification out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attnlab.plot.render import BLUE, GREY, Spec

if TYPE_CHECKING:
    from attnlab.trajectory.compare import Comparison
    from attnlab.trajectory.result import StiffnessResult


def _title(result: StiffnessResult, text: str) -> Spec:
    return {
        "text": f"{text}, {result.network}",
        "subtitle": f"TNS {result.tns:.4g}, {result.inputs} inputs, convention {result.convention}",
    }


def nsi_figure(result: StiffnessResult) -> Spec:
    """NSI per step with its 5–95 % range over inputs; grey steps do not count for TNS."""
    rows = [
        {
            "step": step.label,
            "stage": f"stage {step.stage}",
            "median": step.median,
            "low": step.quantile_05,
            "high": step.quantile_95,
            "mean": step.mean,
            "kept": step.kept,
        }
        for step in result.nsi
    ]
    x = {
        "field": "step",
        "type": "nominal",
        "sort": None,
        "title": "step (stage.block)",
        "axis": {"labelAngle": -90, "labelOverlap": "greedy"},
    }
    colour = {"condition": {"test": "datum.kept", "value": BLUE}, "value": GREY}
    y_title = "NSI: mean, 5–95 % of inputs"
    return {
        "title": _title(result, "NSI per step"),
        "width": max(240, min(16 * len(rows), 900)),
        "height": 240,
        "data": {"values": rows},
        "encoding": {"x": x, "color": colour},
        "layer": [
            {
                "mark": {"type": "rule", "strokeWidth": 2, "opacity": 0.5},
                "encoding": {
                    "y": {"field": "low", "type": "quantitative", "title": y_title},
                    "y2": {"field": "high"},
                },
            },
            {
                "transform": [{"filter": "datum.kept"}],
                "mark": {"type": "line", "strokeWidth": 1},
                "encoding": {
                    "y": {"field": "mean", "type": "quantitative"},
                    "detail": {"field": "stage"},
                },
            },
            {
                "mark": {"type": "point", "size": 25},
                "encoding": {"y": {"field": "mean", "type": "quantitative"}},
            },
        ],
    }


def surface_figure(result: StiffnessResult) -> Spec:
    """δ(M) as a heat map: the share of inputs that are stiff with degree M."""
    return _heat_map(result, result.surface, "δ(M): share of inputs", "δ(M)")


def proportion_figure(result: StiffnessResult) -> Spec:
    """p̂(M) as a heat map: the share of kept steps that are stiff with degree M."""
    return _heat_map(result, result.proportion, "p̂(M): share of kept steps", "p̂(M)")


def _heat_map(
    result: StiffnessResult, values: Sequence[Sequence[float]], text: str, name: str
) -> Spec:
    step1 = result.relative_degrees[1] - result.relative_degrees[0]
    step2 = result.absolute_degrees[1] - result.absolute_degrees[0]
    rows = [
        {
            "m1": one,
            "m1_end": one + step1,
            "m2": two,
            "m2_end": two + step2,
            "value": values[i][j],
        }
        for i, one in enumerate(result.relative_degrees)
        for j, two in enumerate(result.absolute_degrees)
    ]
    return {
        "title": _title(result, text),
        "width": 300,
        "height": 300,
        "data": {"values": rows},
        "mark": {"type": "rect", "strokeWidth": 0},
        "encoding": {
            "x": {
                "field": "m1",
                "type": "quantitative",
                "title": "M₁, above the stage's mean",
                "scale": {"nice": False},
                "axis": {"grid": False},
            },
            "x2": {"field": "m1_end"},
            "y": {
                "field": "m2",
                "type": "quantitative",
                "title": "M₂, NSI at least",
                "scale": {"nice": False},
                "axis": {"grid": False},
            },
            "y2": {"field": "m2_end"},
            "color": {
                "field": "value",
                "type": "quantitative",
                "title": name,
                "scale": {"scheme": "viridis", "domainMin": 0},
            },
        },
    }


def comparison_figure(comparison: Comparison) -> Spec:
    """TNS against accuracy, one point per network, trained and untrained."""
    rows = [
        {"network": row.network, "tns": tns, "accuracy": row.accuracy, "weights": weights}
        for row in comparison.rows
        for tns, weights in ((row.tns, "as given"), (row.untrained_tns, "untrained control"))
        if tns is not None
    ]
    encoding = {
        "x": {"field": "tns", "type": "quantitative", "title": "TNS", "scale": {"zero": False}},
        "y": {
            "field": "accuracy",
            "type": "quantitative",
            "title": "accuracy",
            "scale": {"zero": False},
        },
    }
    return {
        "title": {"text": "TNS and accuracy", "subtitle": comparison.verdict},
        "width": 360,
        "height": 260,
        "data": {"values": rows},
        "encoding": encoding,
        "layer": [
            {
                "mark": {"type": "point", "size": 60},
                "encoding": {
                    "color": {"field": "weights", "type": "nominal", "title": None},
                },
            },
            {
                "transform": [{"filter": "datum.weights == 'as given'"}],
                "mark": {"type": "text", "align": "left", "dx": 7, "fontSize": 10},
                "encoding": {"text": {"field": "network"}},
            },
        ],
    }
