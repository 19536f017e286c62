"""Vega-Lite specification → SVG, in one look. No browser and no network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attnlab._extras import needs
from attnlab._files import write_whole

Spec = dict[str, Any]
"""A Vega-Lite specification with its data inside."""

BLUE, GREY, RED, ORANGE = "#1b6e8c", "#a9b0bd", "#c8563c", "#d98e2b"

_LOOK: Spec = {
    "background": "white",
    "font": "DejaVu Sans, Verdana, sans-serif",
    "title": {
        "anchor": "start",
        "fontSize": 13,
        "offset": 8,
        "subtitleColor": "#555f6d",
        "subtitleFontSize": 11,
    },
    "axis": {
        "titleFontWeight": "normal",
        "labelFontSize": 11,
        "titleFontSize": 11,
        "titlePadding": 6,
        # Vega moves the first and the last label inwards, which makes even ticks look uneven.
        "labelFlush": False,
        "labelSeparation": 8,
        "gridColor": "#e9ebee",
        "domainColor": "#9aa2ad",
        "tickColor": "#9aa2ad",
    },
    "legend": {"titleFontSize": 11, "labelFontSize": 11, "titleFontWeight": "normal"},
    "view": {"stroke": None},
    "point": {"filled": True, "size": 50, "color": BLUE},
    "line": {"color": BLUE},
    "bar": {"color": BLUE},
    "range": {"category": [BLUE, ORANGE, "#6a8f3c", RED, "#7a5ea8", GREY], "heatmap": "viridis"},
}


def to_svg(spec: Spec) -> str:
    """The figure as SVG text; every mark carries its values as an aria-label."""
    with needs("report"):
        import vl_convert

    return str(vl_convert.vegalite_to_svg(spec, config=_LOOK, allowed_base_urls=[]))


def write_svg(spec: Spec, path: Path) -> Path:
    """Write the figure to `path`, whole or not at all."""
    return write_whole(path, to_svg(spec))
