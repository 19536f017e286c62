"""Results against the number of gates, by how their places were chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from attnlab.page.plot import BLUE, GREY, ORANGE, RED, Spec

_RANDOM = "random"
_APART = 0.14
"""Between strategies of one number of gates; numbers are 1 apart."""
_COLOURS = ("#3b4252", BLUE, ORANGE, "#6a8f3c", RED, "#7a5ea8", "#4c9a8a", "#b5651d")


@dataclass(frozen=True)
class PlacedPoint:
    """A row of a study in the picture."""

    strategy: str
    sites: int
    """How many gates it has."""
    delta: float
    """What it gains over the plain backbone."""
    low: float | None
    """The ends of the interval of that, if there is one."""
    high: float | None
    text: str
    """What a reader who points at it is told."""


def placements_figure(points: Sequence[PlacedPoint], title: str | list[str]) -> Spec:
    """Strategies side by side at each number of gates with their intervals; random ones: ticks."""
    strategies = list(dict.fromkeys(point.strategy for point in points))
    numbers = sorted({point.sites for point in points})
    named = [each for each in strategies if each != _RANDOM]
    colours = {each: _COLOURS[i % len(_COLOURS)] for i, each in enumerate(named)}
    colours |= {_RANDOM: GREY} if _RANDOM in strategies else {}
    x = {
        "field": "x",
        "type": "quantitative",
        "title": "number of gates",
        "scale": {"domain": [-0.5, len(numbers) - 0.5], "nice": False},
        "axis": {
            "values": list(range(len(numbers))),
            "labelExpr": f"{numbers}[datum.value]",
            "grid": False,
        },
    }
    colour = {
        "field": "strategy",
        "type": "nominal",
        "title": None,
        "scale": {"domain": list(colours), "range": list(colours.values())},
    }
    return {
        "width": 150 * len(numbers),
        "height": 260,
        "data": {"values": [_row(point, points, numbers) for point in points]},
        "encoding": {"x": x, "color": colour, "description": {"field": "text"}},
        "layer": _layers({"field": "delta", "type": "quantitative", "title": title}),
    }


def _row(point: PlacedPoint, points: Sequence[PlacedPoint], numbers: Sequence[int]) -> Spec:
    return {
        "strategy": point.strategy,
        "delta": point.delta,
        "text": point.text,
        "x": numbers.index(point.sites) + _offset(point, points),
        "low": point.delta if point.low is None else point.low,
        "high": point.delta if point.high is None else point.high,
    }


def _layers(y: Spec) -> list[Spec]:
    """Ticks for random placements; points with their intervals for all others."""
    drawn = [{"filter": f"datum.strategy == '{_RANDOM}'"}]
    chosen = [{"filter": f"datum.strategy != '{_RANDOM}'"}]
    return [
        {
            "transform": drawn,
            "mark": {"type": "tick", "orient": "horizontal", "thickness": 2, "size": 16},
            "encoding": {"y": y},
        },
        {
            "transform": chosen,
            "mark": {"type": "rule", "strokeWidth": 2, "opacity": 0.6, "aria": False},
            "encoding": {
                "y": {"field": "low", "type": "quantitative"},
                "y2": {"field": "high"},
            },
        },
        {
            "transform": chosen,
            "mark": {"type": "point", "size": 60, "opacity": 1},
            "encoding": {"y": y},
        },
    ]


def _offset(point: PlacedPoint, points: Sequence[PlacedPoint]) -> float:
    """Beside the others of the same number of gates."""
    there = list(dict.fromkeys(p.strategy for p in points if p.sites == point.sites))
    return (there.index(point.strategy) - (len(there) - 1) / 2) * _APART
