"""Pictures of stiffness: plain data in, Vega-Lite specification out.

A network is what a `stiffness.json` holds, as a dictionary; a value that is not a number is None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attnlab.page.plot import BLUE, GREY, Spec
from attnlab.page.raster import raster_figure

_NEARLY_ZERO = 0.005
"""Shares up to which a surface may be cut off."""


def stiffest_step(network: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """`label`, `name` and `share` of inputs of the step that the measurement calls the stiffest;
    None where there is none, or where it is not stored."""
    if "stiffest" in network:
        found: Mapping[str, Any] | None = network["stiffest"]
        return found
    # Files of version 0.1 only have the shares, if these.
    kept = [step for step in network["nsi"] if step.get("kept") and step.get("stiffest_share")]
    step = max(kept, key=lambda step: step["stiffest_share"], default=None)
    return step and {**step, "share": step["stiffest_share"]}


def nsi_figure(steps: Sequence[Mapping[str, Any]], title: Spec | None = None) -> Spec:
    """NSI per step with its 5–95 % range over inputs; grey steps do not count for TNS."""
    rows = [
        {
            "step": step["label"],
            "stage": f"stage {step['stage']}",
            "low": step["quantile_05"],
            "high": step["quantile_95"],
            "mean": step["mean"],
            "kept": step["kept"],
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
    y_title = "NSI: mean, 5–95 % of inputs"
    return {
        "title": title,
        "width": max(460, min(16 * len(rows), 900)),
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


def surface_multiple(networks: Mapping[str, Mapping[str, Any]]) -> list[Spec]:
    """δ(M) and then p̂(M) of some networks: one picture each, side by side over the same M and
    colours, with one legend. The networks were measured on the same degrees."""
    kinds = {
        name: {label: np.array(found[key], dtype=np.float64) for label, found in networks.items()}
        for name, key in (("δ(M)", "surface"), ("p̂(M)", "proportion"))
    }
    first = next(iter(networks.values()))
    relative, absolute = first["relative_degrees"], first["absolute_degrees"]
    wide, high = _extent([values for kind in kinds.values() for values in kind.values()])
    # A field of the picture reaches from its own M to the next.
    x_end, y_end = (
        relative[min(wide, len(relative) - 1)],
        absolute[min(high, len(absolute) - 1)],
    )
    size = 150 if len(networks) < 6 else 130
    return [
        {
            "hconcat": [
                _side_by_side(
                    raster_figure(
                        values[:wide, :high].T,
                        description=f"{name} of {label}: {values[0, 0]:.3g} at M = 0, TNS "
                        f"{networks[label]['tns']:.4g}",
                        x=("M₁", 0.0, x_end),
                        y=("M₂", 0.0, y_end),
                        legend=name,
                        low=0.0,
                        high=max(float(surface.max()) for surface in surfaces.values()),
                        title=f"{label}, TNS {networks[label]['tns']:.3g}",
                        size=(size, size),
                        y_from_bottom=True,
                    ),
                    is_first=number == 0,
                    is_last=number == len(surfaces) - 1,
                )
                for number, (label, values) in enumerate(surfaces.items())
            ],
            "spacing": 14,
            "resolve": {"scale": {"color": "independent"}},
        }
        for name, surfaces in kinds.items()
    ]


def _side_by_side(figure: Spec, *, is_first: bool, is_last: bool) -> Spec:
    """One axis for all on the left, one legend for all on the right."""
    encoding = figure["layer"][1]["encoding"]
    if not is_first:
        encoding["y"] = {**encoding["y"], "title": None}
        encoding["y"]["axis"] = {**encoding["y"]["axis"], "labels": False, "ticks": False}
    if not is_last:
        encoding["color"] = {**encoding["color"], "legend": None}
    return figure


def _extent(surfaces: Sequence[np.ndarray]) -> tuple[int, int]:
    """How many degrees M₁ and M₂ show all that is not nearly zero, and one more."""
    seen = np.any([values > _NEARLY_ZERO for values in surfaces], axis=0)
    wide, high = (int(np.flatnonzero(seen.any(axis)).max(initial=0)) + 2 for axis in (1, 0))
    return min(wide, seen.shape[0]), min(high, seen.shape[1])
