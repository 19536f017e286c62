"""Pictures of stiffness: results in, Vega-Lite specifications out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING

import numpy as np

from attnlab.page.plot import BLUE, GREY, Spec
from attnlab.page.raster import raster_figure

if TYPE_CHECKING:
    from attnlab.instruments.stiffness.compare import StiffnessComparison
    from attnlab.instruments.stiffness.result import StepResult, StiffnessResult

_NEARLY_ZERO = 0.005
"""Shares up to which a surface may be cut off."""


def nsi_figure(steps: Sequence[StepResult], title: Spec | None = None) -> Spec:
    """NSI per step with its 5–95 % range over inputs; grey steps do not count for TNS."""
    rows = [
        {
            "step": step.label,
            "stage": f"stage {step.stage}",
            "low": _known(step.quantile_05),
            "high": _known(step.quantile_95),
            "mean": _known(step.mean),
            "kept": step.kept,
        }
        for step in steps
    ]
    x = {
        "field": "step",
        "type": "nominal",
        "sort": None,
        "title": "step (stage.block)",
        "axis": {"labelAngle": -90, "labelOverlap": "greedy"},
    }
    colour = {"condition": {"test": "datum.kept", "value": BLUE}, "value": GREY}
    return {
        "title": title,
        "width": max(460, min(16 * len(rows), 900)),
        "height": 240,
        "data": {"values": rows},
        "encoding": {"x": x, "color": colour},
        "layer": _nsi_layers(),
    }


def _nsi_layers() -> list[Spec]:
    """The range of every step, a line through the counted ones of a stage, and a dot per step."""
    mean = {"field": "mean", "type": "quantitative"}
    low = {"field": "low", "type": "quantitative", "title": "NSI: mean, 5–95 % of inputs"}
    return [
        {
            "mark": {"type": "rule", "strokeWidth": 2, "opacity": 0.5},
            "encoding": {"y": low, "y2": {"field": "high"}},
        },
        {
            "transform": [{"filter": "datum.kept"}],
            "mark": {"type": "line", "strokeWidth": 1},
            "encoding": {"y": mean, "detail": {"field": "stage"}},
        },
        {"mark": {"type": "point", "size": 25}, "encoding": {"y": mean}},
    ]


def degrees_figure(
    relative: Sequence[float],
    absolute: Sequence[float],
    values: Sequence[Sequence[float]],
    name: str,
    title: Spec | None = None,
) -> Spec:
    """Values over M₁ × M₂, such as δ(M), as a heat map."""
    step1, step2 = relative[1] - relative[0], absolute[1] - absolute[0]
    rows = [
        {
            "m1": one,
            "m1_end": one + step1,
            "m2": two,
            "m2_end": two + step2,
            "value": values[i][j],
        }
        for i, one in enumerate(relative)
        for j, two in enumerate(absolute)
    ]
    return {
        "title": title,
        "width": 300,
        "height": 300,
        "data": {"values": rows},
        "mark": {"type": "rect", "strokeWidth": 0},
        "encoding": {
            "x": _degree_axis("m1", "M₁, above the stage's mean"),
            "x2": {"field": "m1_end"},
            "y": _degree_axis("m2", "M₂, NSI at least"),
            "y2": {"field": "m2_end"},
            "color": {
                "field": "value",
                "type": "quantitative",
                "title": name,
                "scale": {"scheme": "viridis", "domainMin": 0},
            },
        },
    }


def _degree_axis(field: str, title: str) -> Spec:
    """An axis that ends where the cells end."""
    return {
        "field": field,
        "type": "quantitative",
        "title": title,
        "scale": {"nice": False},
        "axis": {"grid": False},
    }


def surface_multiple(networks: Mapping[str, StiffnessResult]) -> list[Spec]:
    """δ(M) and then p̂(M) of some networks: one picture each, side by side over the same M and
    colours, with one legend. The networks were measured on the same degrees."""
    kinds = {
        "δ(M)": {label: np.array(found.surface) for label, found in networks.items()},
        "p̂(M)": {label: np.array(found.proportion) for label, found in networks.items()},
    }
    first = next(iter(networks.values()))
    relative, absolute = first.relative_degrees, first.absolute_degrees
    wide, high = _extent([values for kind in kinds.values() for values in kind.values()])
    # A field of the picture reaches from its own M to the next.
    x_end, y_end = relative[min(wide, len(relative) - 1)], absolute[min(high, len(absolute) - 1)]
    size = 150 if len(networks) < 6 else 130
    return [
        {
            "hconcat": [
                raster_figure(
                    values[:wide, :high].T,
                    description=f"{name} of {label}: {values[0, 0]:.3g} at M = 0, TNS "
                    f"{networks[label].tns:.4g}",
                    x=("M₁", 0.0, x_end),
                    y=("M₂", 0.0, y_end),
                    legend=name,
                    low=0.0,
                    high=max(float(surface.max()) for surface in surfaces.values()),
                    title=f"{label}, TNS {networks[label].tns:.3g}",
                    size=(size, size),
                    y_from_bottom=True,
                    has_y_axis=number == 0,
                    has_legend=number == len(surfaces) - 1,
                )
                for number, (label, values) in enumerate(surfaces.items())
            ],
            "spacing": 14,
            "resolve": {"scale": {"color": "independent"}},
        }
        for name, surfaces in kinds.items()
    ]


def _extent(surfaces: Sequence[np.ndarray]) -> tuple[int, int]:
    """How many degrees M₁ and M₂ show all that is not nearly zero, and one more."""
    seen = np.any([values > _NEARLY_ZERO for values in surfaces], axis=0)
    wide, high = (int(np.flatnonzero(seen.any(axis)).max(initial=0)) + 2 for axis in (1, 0))
    return min(wide, seen.shape[0]), min(high, seen.shape[1])


def _known(value: float) -> float | None:
    """Vega-Lite leaves out what is null."""
    return value if isfinite(value) else None


def surface_figure(result: StiffnessResult) -> Spec:
    """δ(M) as a heat map: the share of inputs that are stiff with degree M."""
    degrees = result.relative_degrees, result.absolute_degrees
    heading = title(result, "δ(M): share of inputs")
    return degrees_figure(*degrees, result.surface, "δ(M)", heading)


def proportion_figure(result: StiffnessResult) -> Spec:
    """p̂(M) as a heat map: the share of kept steps that are stiff with degree M."""
    degrees = result.relative_degrees, result.absolute_degrees
    heading = title(result, "p̂(M): share of kept steps")
    return degrees_figure(*degrees, result.proportion, "p̂(M)", heading)


def title(result: StiffnessResult, text: str) -> Spec:
    """A title that says of what network, on how many inputs, by which convention."""
    return {
        "text": f"{text}, {result.network}",
        "subtitle": f"TNS {result.tns:.4g}, {result.inputs} inputs, convention {result.convention}",
    }


def comparison_figure(comparison: StiffnessComparison) -> Spec:
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
