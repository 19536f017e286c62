"""The picture of a placement: plain data in, Vega-Lite specification out.

A placement is what a `place.json` holds, as a dictionary.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attnlab.page.plot import BLUE, GREY, Spec

_TIE = 0.05


def margin_in_words(margin: Mapping[str, Any]) -> str:
    """`0.006 (1.1 %) from 1.1 to 1.2 in stage 1: nearly a tie`."""
    size = abs(margin["score"])
    share = margin["margin"] / size if size else 0.0
    stage = "" if margin["stage"] is None else f" in stage {margin['stage']}"
    tie = ": nearly a tie" if share < _TIE else ""
    return (
        f"{margin['margin']:.3g} ({100 * share:.1f} %) from {margin['chosen']} to "
        f"{margin['following']}{stage}{tie}"
    )


def place_figure(placement: Mapping[str, Any]) -> Spec:
    """Every block with its score, the chosen ones in colour; those that could not be chosen have no
    bar."""
    rows = [
        {
            "block": block["label"],
            "stage": f"stage {block['stage']}",
            "score": block["score"],
            "which": "chosen" if block["chosen"] else "not chosen",
        }
        for block in placement["blocks"]
    ]
    x = {
        "field": "block",
        "type": "nominal",
        "sort": None,
        "title": "block (stage.block)",
        "scale": {"domain": [row["block"] for row in rows]},
        "axis": {"labelAngle": -90, "labelOverlap": "greedy"},
    }
    return {
        "title": {"text": f"{placement['network']}: {placement['strategy']}"},
        "width": max(320, min(24 * len(rows), 900)),
        "height": 200,
        "data": {"values": rows},
        "mark": {"type": "bar"},
        "encoding": {
            "x": x,
            "y": {"field": "score", "type": "quantitative", "title": placement["quantity"]},
            "color": {
                "field": "which",
                "type": "nominal",
                "title": None,
                "scale": {"domain": ["chosen", "not chosen"], "range": [BLUE, GREY]},
            },
        },
    }
