"""Figures of a stiffness measurement: result in, Vega-Lite specification out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnlab.instruments.stiffness import figures as stiffness
from attnlab.page.plot import Spec

if TYPE_CHECKING:
    from attnlab.instruments.stiffness.compare import Comparison
    from attnlab.instruments.stiffness.result import StiffnessResult


def nsi_figure(result: StiffnessResult) -> Spec:
    """NSI per step with its 5–95 % range over inputs; grey steps do not count for TNS."""
    return stiffness.nsi_figure([vars(step) for step in result.nsi], _title(result, "NSI per step"))


def surface_figure(result: StiffnessResult) -> Spec:
    """δ(M) as a heat map: the share of inputs that are stiff with degree M."""
    title = _title(result, "δ(M): share of inputs")
    degrees = result.relative_degrees, result.absolute_degrees
    return stiffness.degrees_figure(*degrees, result.surface, "δ(M)", title)


def proportion_figure(result: StiffnessResult) -> Spec:
    """p̂(M) as a heat map: the share of kept steps that are stiff with degree M."""
    title = _title(result, "p̂(M): share of kept steps")
    degrees = result.relative_degrees, result.absolute_degrees
    return stiffness.degrees_figure(*degrees, result.proportion, "p̂(M)", title)


def _title(result: StiffnessResult, text: str) -> Spec:
    return {
        "text": f"{text}, {result.network}",
        "subtitle": f"TNS {result.tns:.4g}, {result.inputs} inputs, convention {result.convention}",
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
