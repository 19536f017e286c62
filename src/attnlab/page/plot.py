"""Vega-Lite specification → SVG, in one look. No browser and no network."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from attnlab._errors import OptionError
from attnlab._extras import needs
from attnlab._files import write_whole

Spec = dict[str, Any]
"""A Vega-Lite specification with its data inside: JSON, whose shape Vega-Lite alone checks."""

BLUE, GREY, RED, ORANGE = "#1b6e8c", "#a9b0bd", "#c8563c", "#d98e2b"
SLATE = "#5d6674"
"""The plain network, which the others are compared with."""
FULL, HALF, BESIDE = 860, 410, 350
"""Width of the inside of a figure that fills the column of a page, of one of two side by side, and
of one of two whose rows have their names beside them: the column has 1032 pixels, and a name up to
130."""
PALETTE = (BLUE, ORANGE, RED, "#6a8f3c", "#7a5ea8", "#2e8b8b", "#b07aa1", "#8c6d46")
"""The colours of what is compared, in the order of its rows."""

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
    "range": {"category": [*PALETTE], "heatmap": "viridis"},
}


def row_colours(rows: Iterable[tuple[str, bool]]) -> dict[str, str]:
    """One colour for each of the rows (label, whether it is the plain network), so that a module
    has the same on all figures. From the ninth module on they repeat, and a mark's text tells."""
    named = dict(rows)
    others = [label for label, plain in named.items() if not plain]
    given = {label: PALETTE[n % len(PALETTE)] for n, label in enumerate(others)}
    return {label: SLATE if plain else given[label] for label, plain in named.items()}


def swatch(colour: str) -> str:
    """The class of a legend's swatch of this colour; the style sheet has one for each row."""
    return f"of-{colour.removeprefix('#')}"


def to_svg(spec: Spec) -> str:
    """The figure as SVG text; every mark carries its values as an aria-label."""
    with needs("report"):
        import vl_convert

    return str(vl_convert.vegalite_to_svg(spec, config=_LOOK, allowed_base_urls=[]))


def write_svg(spec: Spec, path: Path) -> Path:
    """Write the figure to `path`, whole or not at all."""
    return write_whole(path, to_svg(spec))


_PIXELS = 3
"""Pixels of a PNG for each pixel of the figure: sharp on a projector."""


def write_figure(spec: Spec, path: Path) -> Path:
    """Write the figure to `path`, as SVG, PNG or PDF by its suffix."""
    check_figure_file(path)
    if path.suffix.lower() == ".svg":
        return write_svg(spec, path)
    with needs("report"):
        import vl_convert

    # No address is allowed: a figure brings its data, and nothing is fetched.
    if path.suffix.lower() == ".png":
        drawn = vl_convert.vegalite_to_png(spec, scale=_PIXELS, config=_LOOK, allowed_base_urls=[])
    else:
        drawn = vl_convert.vegalite_to_pdf(spec, config=_LOOK, allowed_base_urls=[])
    return write_whole(path, drawn)


def check_figure_file(path: Path) -> None:
    """Refuse a name whose suffix says nothing that can be drawn."""
    if path.suffix.lower() not in (".svg", ".png", ".pdf"):
        raise OptionError(
            f"Expected a figure to be named .svg, .png or .pdf but got {str(path)!r}."
        )
