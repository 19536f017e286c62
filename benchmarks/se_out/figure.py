"""The picture of `run`: what it costs to take gates out, predicted and measured, and what
becomes of the accuracy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from attnlab.page.plot import BLUE, GREY, ORANGE, Spec, write_svg

KINDS = {"predicted": "predicted", "measured": "measured on test images"}


def write_figure(networks: dict[str, list[dict[str, Any]]], path: Path) -> Path:
    """Write one column per network, means over its runs."""
    columns = [_column(name, runs) for name, runs in networks.items()]
    return write_svg({"hconcat": columns, "spacing": 50}, path)


def _values(runs: list[dict[str, Any]]) -> tuple[list[Spec], list[Spec]]:
    """Return what every number of gates costs, and what becomes of the accuracy."""
    costs, gains = [], []
    for number in range(1, len(runs[0]["curve"]["points"]) + 1):
        points = [run["curve"]["points"][number - 1] for run in runs]
        for kind, words in KINDS.items():
            value = float(np.mean([point[kind] for point in points]))
            costs.append({"gates": number, "change": value, "kind": words})
        gained = [
            100 * (point["accuracy"] - run["curve"]["accuracy"])
            for point, run in zip(points, runs, strict=True)
        ]
        errors = [100 * point["accuracy_error"] for point in points]
        half = 1.96 * float(np.sqrt(np.square(errors).sum())) / len(errors)
        mean = float(np.mean(gained))
        gains.append({"gates": number, "gain": mean, "low": mean - half, "high": mean + half})
    return costs, gains


def _column(name: str, runs: list[dict[str, Any]]) -> Spec:
    costs, gains = _values(runs)
    x = {
        "field": "gates",
        "type": "quantitative",
        "title": f"gates made constant, of {len(gains)}",
        "axis": {"tickMinStep": 1, "grid": False},
        "scale": {"domain": [0.5, len(gains) + 0.5], "nice": False},
    }
    colour = {
        "field": "kind",
        "type": "nominal",
        "title": None,
        "scale": {"domain": list(KINDS.values()), "range": [BLUE, ORANGE]},
        "legend": {"orient": "top"},
    }
    change = {"field": "change", "type": "quantitative", "title": "relative change of the output"}
    gain = {"field": "gain", "type": "quantitative", "title": "Δ accuracy, points"}
    size = {"width": 270, "height": 150}
    line = {"mark": {"type": "line", "point": True}, "encoding": {"x": x, "y": change}}
    line["encoding"]["color"] = colour
    reach = {"x": x, "y": {**gain, "field": "low"}, "y2": {"field": "high"}}
    zero = {"mark": {"type": "rule", "color": GREY, "strokeDash": [4, 3]}, "encoding": {"y": gain}}
    layers = [
        {"data": {"values": [{"gain": 0}]}, **zero},
        {"mark": {"type": "rule", "strokeWidth": 2, "color": BLUE}, "encoding": reach},
        {"mark": {"type": "point"}, "encoding": {"x": x, "y": gain}},
    ]
    above = {**size, "data": {"values": costs}, **line}
    below = {**size, "data": {"values": gains}, "layer": layers}
    return {"title": name, "vconcat": [above, below]}
