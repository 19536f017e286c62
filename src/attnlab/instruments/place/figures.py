"""The picture of a placement, as a Vega-Lite specification."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnlab.page.plot import BLUE, FULL, GREY, Spec

if TYPE_CHECKING:
    from attnlab.instruments.place.result import Placement


MANY = 36
"""Blocks up to which the figure fits into the column of a page; of more, it scrolls."""


def place_figure(placement: Placement) -> Spec:
    """Every block with its score, the chosen ones in colour; those that could not be chosen have no
    bar."""
    rows = [
        {
            "block": block.label,
            "stage": f"stage {block.stage}",
            "score": block.score,
            "which": "chosen" if block.chosen else "not chosen",
        }
        for block in placement.blocks
    ]
    x = {
        "field": "block",
        "type": "nominal",
        "sort": None,
        "title": "block (stage.block)",
        "scale": {"domain": [block.label for block in placement.blocks]},
        "axis": {"labelAngle": -90, "labelOverlap": "greedy"},
    }
    return {
        "width": FULL if len(rows) <= MANY else min(24 * len(rows), 1200),
        "height": 200,
        "data": {"values": rows},
        "mark": {"type": "bar"},
        "encoding": {
            "x": x,
            "y": {"field": "score", "type": "quantitative", "title": placement.quantity},
            "color": {
                "field": "which",
                "type": "nominal",
                "title": None,
                "scale": {"domain": ["chosen", "not chosen"], "range": [BLUE, GREY]},
                "legend": {"orient": "top"},
            },
        },
    }
