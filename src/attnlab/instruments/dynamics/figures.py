"""Figures of the ODE side: data in, Vega-Lite specification out."""

from __future__ import annotations

from collections.abc import Sequence

from attnlab.instruments.dynamics.theorem2 import Decay, RankCorrelation
from attnlab.instruments.dynamics.three_body import Array
from attnlab.page.plot import BLUE, GREY, Spec


def decay_figure(decay: Decay) -> Spec:
    """SAI/SI along one solution: the "constant" c of theorem 2 dies out."""
    rows = [
        {"time": time, "ratio": ratio}
        for time, ratio in zip(decay.times.tolist(), decay.ratio.tolist(), strict=True)
    ]
    return {
        "title": {
            "text": "SAI / SI along one solution of a linear system",
            "subtitle": "The Jacobian, and so SI, is the same at all times.",
        },
        "width": 420,
        "height": 240,
        "data": {"values": rows},
        "mark": {"type": "line", "point": False},
        "encoding": {
            "x": {"field": "time", "type": "quantitative", "title": "time, in units of 1/SI"},
            "y": {
                "field": "ratio",
                "type": "quantitative",
                "scale": {"type": "log"},
                "title": "SAI / SI",
            },
        },
    }


def rank_figure(rows: Sequence[RankCorrelation]) -> Spec:
    """Spearman(SI, SAI) per problem."""
    values = [{"problem": row.problem, "correlation": row.correlation} for row in rows]
    return {
        "title": {
            "text": "Spearman correlation of SI and SAI along a solution",
            "subtitle": "+1 is what using SAI for SI assumes.",
        },
        "width": 420,
        "height": {"step": 24},
        "data": {"values": values},
        "mark": {"type": "bar", "height": 12},
        "encoding": {
            "y": {"field": "problem", "type": "nominal", "sort": None, "title": None},
            "x": {
                "field": "correlation",
                "type": "quantitative",
                "scale": {"domain": [-1, 1]},
                "title": "Spearman's ρ",
            },
            "color": {
                "condition": {"test": "datum.correlation < 0", "value": GREY},
                "value": BLUE,
            },
        },
    }


def encounter_figure(share: Array) -> Spec:
    """Draw how long the trajectories spend in close encounters."""
    return {
        "title": {
            "text": "Share of the time with two bodies closer than 0.4",
            "subtitle": f"{len(share)} trajectories; {100 * (share > 0).mean():.1f} % have some.",
        },
        "width": 420,
        "height": 220,
        "data": {"values": [{"share": 100 * value} for value in share.tolist()]},
        "mark": "bar",
        "encoding": {
            "x": {
                "field": "share",
                "type": "quantitative",
                "bin": {"step": 1},
                "title": "share of the time, %",
            },
            "y": {"aggregate": "count", "title": "trajectories"},
        },
    }
