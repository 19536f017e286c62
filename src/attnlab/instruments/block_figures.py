"""Figures over the blocks of networks: plain data in, Vega-Lite specification out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeVar

from attnlab.page.parts import Figure
from attnlab.page.plot import BLUE, FULL, Spec
from attnlab.page.scatter import scatter
from attnlab.results import Metric
from attnlab.results.metric import directed

T = TypeVar("T")


def some_of(things: Sequence[T], number: int) -> list[T]:
    """Return at most `number` of `things`, equally far apart, the first among them."""
    return list(things[:: max(1, -(-len(things) // number))])


def natural_order(name: str) -> list[str]:
    """A key to sort by: `1.10` comes after `1.9`."""
    return [part.zfill(9) for part in re.split(r"(\d+)", name)]


_LEAST_STEP = 24
"""Pixels of a column whose name stands below it."""


def width_of(columns: int, width: int = FULL) -> int | Spec:
    """`width` for as many columns as fit into it; of more, a width for each, and it scrolls."""
    return width if columns * _LEAST_STEP <= width else {"step": max(12, min(26, 900 // columns))}


def block_figure(spec: Spec) -> Figure:
    """The part of a page: of so many columns that each has its width, it scrolls sideways."""
    return Figure(spec, wide=not isinstance(spec["width"], int))


_MANY = 28
"""Columns from which on their labels no longer fit beside each other, and are turned."""


def heat_figure(
    cells: Sequence[tuple[str, str, float]],
    *,
    legend: str,
    x_title: str = "residual block (stage.block)",
    title: str = "",
    limit: float | None = None,
    width: int = FULL,
) -> Spec:
    """(row, column, value) as a heat map: rows in the order given, columns as their numbers say,
    because not every row has every column."""
    rows = list(dict.fromkeys(row for row, _, _ in cells))
    columns = sorted({column for _, column, _ in cells}, key=natural_order)
    values = [
        {
            "row": row,
            "column": column,
            "value": value,
            "text": f"{row}, block {column}: {legend} {value:.3g}",
        }
        for row, column, value in cells
    ]
    many = len(columns) >= _MANY
    name = {"type": "nominal"}
    labels = {"domain": False, "labelAngle": -90 if many else 0, "labelOverlap": "greedy"}
    names = {"domain": False, "ticks": False, "labelLimit": 130}
    return {
        "title": title or None,
        "width": width_of(len(columns), width),
        "height": {"step": 20 if many else 24},
        "data": {"values": values},
        "mark": {"type": "rect", "stroke": "white", "strokeOpacity": 0.15, "strokeWidth": 1},
        "encoding": {
            "x": {"field": "column", "sort": columns, "title": x_title, **name, "axis": labels},
            "y": {"field": "row", "sort": rows, "title": None, **name, "axis": names},
            "color": _color(legend, limit),
            "description": {"field": "text"},
        },
    }


def _color(legend: str, limit: float | None) -> Spec:
    """The colour of a cell, from 0 to `limit` if there is one."""
    scale: Spec = {"scheme": "viridis"}
    if limit is not None:
        scale |= {"domain": [0, limit], "clamp": True}
    return {
        "field": "value",
        "type": "quantitative",
        "title": legend,
        "scale": scale,
        # On top, where a narrow screen shows it without scrolling.
        "legend": {
            "orient": "top",
            "direction": "horizontal",
            "titleOrient": "left",
            "gradientLength": 150,
            "gradientThickness": 10,
            "tickCount": 3,
            "offset": 6,
        },
    }


def stiffness_figure(
    points: Sequence[tuple[str, float, float]],
    metric: Metric,
    title: str = "",
    colours: Mapping[str, str] | None = None,
) -> Spec:
    """(module, TNS, result), one point each, in the colour of its module."""
    values = [
        {
            "module": module,
            "tns": tns,
            "result": result,
            "text": f"{module}: TNS {tns:.4g}, {metric.shown_text(result)}",
            "colour": BLUE if colours is None else colours[module],
        }
        for module, tns, result in points
    ]
    y = ("result", directed(f"{metric.title}, mean over seeds", metric))
    figure = scatter(values, ("tns", "TNS, mean over seeds"), y, title)
    # It is never negative, and its distance to 0 counts.
    figure["encoding"]["x"]["scale"] = {"domainMin": 0, "nice": True}
    return figure


def _whole_axis(most: int) -> Spec:
    # Of a few runs Vega halves the least step.
    return {"values": [*range(most + 1)], "format": "d"} if most <= 8 else {"tickMinStep": 1}


def counts_figure(counts: Sequence[tuple[str, int]], total: int) -> Spec:
    """(block, number of runs of which it is the stiffest) as bars."""
    values = [
        {"block": block, "runs": runs, "text": f"block {block}: stiffest of {runs} of {total} runs"}
        for block, runs in counts
    ]
    return {
        "width": width_of(len(counts)),
        "height": 130,
        "data": {"values": values},
        "mark": "bar",
        "encoding": {
            "x": {
                "field": "block",
                "type": "nominal",
                "sort": None,
                "title": "residual block (stage.block)",
                "axis": {
                    "labelAngle": 0 if len(counts) < _MANY else -90,
                    "labelOverlap": "greedy",
                },
            },
            "y": {
                "field": "runs",
                "type": "quantitative",
                "title": "runs",
                "axis": _whole_axis(max((runs for _, runs in counts), default=0)),
            },
            "description": {"field": "text"},
        },
    }
