"""Pictures of exact mathematics: forward Euler, the staircase of TNS, three bodies, theorem 2."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from attnlab.instruments.dynamics import figures as dynamics
from attnlab.instruments.dynamics import three_body
from attnlab.instruments.dynamics.theorem2 import decay, rank_correlations
from attnlab.instruments.stiffness.stages import stage_peaks
from attnlab.page.plot import BLUE, GREY, ORANGE, RED, Spec

# NSI of one input: three stages, the first block of each does not count.
NSI = [9.0, 0.2, 0.2, 0.8, 9.0, 0.1, 0.1, 0.1, 0.5, 9.0, 0.9, 1.5]
STAGES = [1, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3]


def pictures() -> dict[str, Spec]:
    return {
        "euler": euler_figure(),
        "staircase": staircase_figure(NSI, STAGES),
        "theorem2-decay": dynamics.decay_figure(decay()),
        "theorem2-rank": dynamics.rank_figure(rank_correlations()),
        "three-body": three_body_figure(),
        "encounters": dynamics.encounter_figure(three_body.encounter_shares(1000).share),
    }


def euler_figure(rate: float = 8.0, end: float = 3.0) -> Spec:
    """u' = −rate·(u − cos t) by forward Euler: too long a step swings away from the solution."""
    rows = []
    for name, step in (("Δt = 0.26 > 2/8", 0.26), ("Δt = 0.1", 0.1)):
        value = 0.0
        for number in range(int(end / step) + 1):
            rows.append({"t": number * step, "u": value, "step": name})
            value -= step * rate * (value - np.cos(number * step))
    rows += [
        {"t": t, "u": _relaxation(t, rate), "step": "solution"} for t in np.linspace(0, end, 120)
    ]
    names = ["solution", "Δt = 0.1", "Δt = 0.26 > 2/8"]
    colour = {
        "field": "step",
        "type": "nominal",
        "title": None,
        "sort": names,
        "scale": {"domain": names, "range": [GREY, BLUE, RED]},
        "legend": {"orient": "top", "symbolType": "circle", "symbolOpacity": 1},
    }
    encoding: Spec = {
        "x": {"field": "t", "type": "quantitative", "title": "t", "axis": {"grid": False}},
        "y": {"field": "u", "type": "quantitative", "title": "u"},
        "color": colour,
    }
    return {
        "title": {
            "text": "One right-hand side, two step sizes",
            "subtitle": "u' = −8 (u − cos t), forward Euler",
        },
        "width": 420,
        "height": 240,
        "data": {"values": rows},
        "encoding": encoding,
        "layer": [
            {"mark": {"type": "line", "strokeWidth": 1.6, "interpolate": "linear"}},
            {
                "transform": [{"filter": "datum.step != 'solution'"}],
                "mark": {"type": "point", "size": 22, "opacity": 1},
            },
        ],
    }


def _relaxation(t: float, rate: float) -> float:
    """The solution of u' = −rate·(u − cos t), u(0) = 0."""
    norm = 1 + rate**2
    forced = (rate**2 * np.cos(t) + rate * np.sin(t)) / norm
    return float(forced - rate**2 / norm * np.exp(-rate * t))


def staircase_figure(nsi: Sequence[float], stages: Sequence[int]) -> Spec:
    """Where one input is stiff: a rectangle per stage, TNS the area of their union."""
    values = torch.tensor([nsi], dtype=torch.float64)
    peaks = stage_peaks(values, torch.tensor(stages))
    corners = [
        {"a": a, "b": b, "stage": f"stage {s}", "text": f"stage {s}: [0, {a:.3g}] × [0, {b:.3g}]"}
        for a, b, s in zip(
            peaks.excess[0].tolist(), peaks.peak[0].tolist(), dict.fromkeys(stages), strict=True
        )
    ]
    descending = sorted(corners, key=lambda corner: -float(str(corner["a"])))
    outline, tallest, area = [], 0.0, 0.0
    for here, after in zip(descending, [*descending[1:], {"a": 0.0}], strict=True):
        tallest = max(tallest, float(str(here["b"])))
        outline += [{"m1": here["a"], "m2": tallest}, {"m1": after["a"], "m2": tallest}]
        area += (float(str(here["a"])) - float(str(after["a"]))) * tallest
    outline = [{"m1": descending[0]["a"], "m2": 0.0}, *outline]
    line = [{**point, "order": number} for number, point in enumerate(outline)]
    m1 = {"type": "quantitative", "title": "M₁, above the stage's mean", "axis": {"grid": False}}
    m2 = {"type": "quantitative", "title": "M₂, NSI at least", "axis": {"grid": False}}
    return {
        "title": {
            "text": f"One input is stiff with degree M under the staircase: TNS = {area:.4g}",
            "subtitle": "A rectangle per stage. Dashed: the box [0, 1]²; what is outside is lost.",
        },
        "width": 420,
        "height": 280,
        "layer": [
            {
                "data": {"values": corners},
                "mark": {"type": "rect", "opacity": 0.35},
                "encoding": {
                    "x": {**m1, "field": "a", "scale": {"domain": [0, 1.8]}},
                    "x2": {"datum": 0},
                    "y": {**m2, "field": "b", "scale": {"domain": [0, 1.7]}},
                    "y2": {"datum": 0},
                    "color": {
                        "field": "stage",
                        "type": "nominal",
                        "title": None,
                        "scale": {"range": [BLUE, ORANGE, "#6a8f3c"]},
                        "legend": {"orient": "top"},
                    },
                    "description": {"field": "text"},
                },
            },
            {
                "data": {"values": line},
                "mark": {"type": "line", "color": "#1b2130", "strokeWidth": 2, "aria": False},
                "encoding": {
                    "x": {**m1, "field": "m1"},
                    "y": {**m2, "field": "m2"},
                    "order": {"field": "order", "type": "quantitative"},
                },
            },
            {
                "data": {"values": [{"low": 0, "high": 1}]},
                "mark": {
                    "type": "rect",
                    "filled": False,
                    "stroke": RED,
                    "strokeDash": [5, 4],
                    "strokeWidth": 1.5,
                    "aria": False,
                },
                "encoding": {
                    "x": {**m1, "field": "low"},
                    "x2": {"field": "high"},
                    "y": {**m2, "field": "low"},
                    "y2": {"field": "high"},
                },
            },
        ],
    }


def three_body_figure(end: float = 12.0, seed: int = 1) -> Spec:
    """One trajectory: the paths, red where two bodies are close, and their least distance."""
    times = np.linspace(0, end, 700)
    states = three_body.trajectory(
        three_body.initial_states(1, np.random.default_rng(seed))[:, 0], times
    )
    distance = three_body.least_distance(states)
    position = states[:6].reshape(3, 2, -1)
    paths, close = [], []
    for body in range(3):
        others = np.delete(position, body, 0) - position[body]
        nearest = np.sqrt((others**2).sum(1)).min(0)
        for (x_here, y_here), t, gap in zip(position[body].T.round(3), times, nearest, strict=True):
            row = {"x": x_here, "y": y_here, "t": round(t, 3), "body": f"body {body + 1}"}
            paths.append(row)
            if gap < three_body.DISTANCE:
                close.append(row)
    plain = {"grid": False, "tickCount": 4}
    x: Spec = {"field": "x", "type": "quantitative", "axis": plain, "title": "x"}
    y: Spec = {"field": "y", "type": "quantitative", "axis": plain, "title": "y"}
    x["scale"], y["scale"] = {"domain": [-2, 3]}, {"domain": [-1.5, 3.5]}
    near = [{"t": t, "distance": d} for t, d in zip(times, distance.round(4), strict=True)]
    return {
        "title": {
            "text": "Three bodies: close encounters are short, and many trajectories have one",
            "subtitle": "Red: the two are closer than 0.4, our limit; it fits the paper's numbers.",
        },
        "hconcat": [
            {
                "width": 220,
                "height": 220,
                "layer": [
                    {
                        "data": {"values": paths},
                        "mark": {"type": "line", "strokeWidth": 1.2},
                        "encoding": {
                            "x": x,
                            "y": y,
                            "order": {"field": "t", "type": "quantitative"},
                            "color": {
                                "field": "body",
                                "type": "nominal",
                                "title": None,
                                "legend": {"orient": "bottom"},
                                "scale": {"range": [BLUE, ORANGE, GREY]},
                            },
                        },
                    },
                    {
                        "data": {"values": close},
                        "mark": {"type": "point", "size": 5, "color": RED, "aria": False},
                        "encoding": {"x": x, "y": y},
                    },
                ],
            },
            {
                "width": 300,
                "height": 220,
                "layer": [
                    {
                        "data": {"values": near},
                        "mark": {"type": "line", "strokeWidth": 1.4},
                        "encoding": {
                            "x": {
                                "field": "t",
                                "type": "quantitative",
                                "axis": plain,
                                "title": "t",
                            },
                            "y": {
                                "field": "distance",
                                "type": "quantitative",
                                "title": "least pair distance",
                                "axis": plain,
                            },
                        },
                    },
                    {
                        "data": {"values": [{"limit": three_body.DISTANCE}]},
                        "mark": {"type": "rule", "color": RED, "strokeDash": [4, 3]},
                        "encoding": {"y": {"field": "limit", "type": "quantitative"}},
                    },
                ],
            },
        ],
    }
