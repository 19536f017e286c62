"""Pictures of gates: Vega-Lite specifications of what `stripe` found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from attnlab.page.plot import BLUE, GREY, Spec
from attnlab.page.raster import raster_figure

if TYPE_CHECKING:
    from attnlab.instruments.stripe.result import SiteStripe

MAPS = 6
"""How many images a picture of spatial maps shows, as the supplement does."""


def gates_figure(site: SiteStripe) -> Spec:
    """Gates of some images, image × channel: vertical stripes mean that images hardly differ
    (Figs. 17–23)."""
    values = np.array(site.sample)
    images, channels = values.shape
    ratio = "undefined" if site.ratio is None else f"{site.ratio:.2g}"
    return raster_figure(
        values,
        description=(
            f"Gate {site.label} ({site.name}) of {images} images × {channels} of {site.channels} "
            f"channels, from {values.min():.3g} to {values.max():.3g}; mean {site.mean:.3g}, "
            f"spread across images {site.image_spread:.2g}, across channels "
            f"{site.channel_spread:.2g}, ratio {ratio}"
        ),
        x=("channel", 0, channels),
        y=("image", 0, images),
        legend="gate",
        title=f"block {site.label}, ratio {ratio}",
        size=(200, 145),
    )


def maps_figure(site: SiteStripe) -> Spec:
    """Spatial attention of a few images side by side (Fig. 24)."""
    maps = [np.array(each) for each in site.maps[:MAPS]]
    gap = np.full((maps[0].shape[0], 1), np.nan)
    parts = [part for each in maps for part in (each, gap)][:-1]
    row = np.concatenate(parts, axis=1)
    low, high = np.nanmin(row), np.nanmax(row)
    return raster_figure(
        row,
        description=(
            f"Spatial attention at {site.label} ({site.name}) of {len(maps)} images, from "
            f"{low:.3g} to {high:.3g}"
        ),
        x=("images side by side", 0, row.shape[1]),
        y=("row", 0, row.shape[0]),
        legend="gate",
        title=f"block {site.label}, spatial maps",
        size=(80 * len(maps), 80),
    )


def difference_figure(name: str, epochs: Sequence[int], difference: np.ndarray) -> Spec:
    """|first difference| of a gate, channel × epoch: dark means that it no longer moves."""
    first, last = (float(np.median(row)) for row in (difference[0], difference[-1]))
    return raster_figure(
        difference.T,
        description=(
            f"|first difference| of gate {name} over epochs {epochs[0]} to {epochs[-1]}, "
            f"{difference.shape[1]} channels: median {first:.2g} at first, "
            f"{last:.2g} at the end"
        ),
        x=("epoch", epochs[0], epochs[-1]),
        y=("channel", 0, difference.shape[1]),
        legend="|Δ gate|",
        low=0.0,
        title=name,
        size=(190, 130),
    )


def spread_figure(sites: Sequence[SiteStripe]) -> Spec:
    """Spread of every gate across images and across channels."""
    rows = [
        {"gate": f"{number}. {site.label}", "across": across, "spread": spread}
        for number, site in enumerate(sites, 1)
        for across, spread in (("images", site.image_spread), ("channels", site.channel_spread))
    ]
    return {
        "width": max(240, min(18 * len(sites), 860)),
        "height": 200,
        "data": {"values": rows},
        "mark": {"type": "point", "size": 45},
        "encoding": {
            "x": {
                "field": "gate",
                "type": "nominal",
                "sort": None,
                "title": "gate, with its block (stage.block)",
                "axis": {"labelAngle": -90, "labelOverlap": "greedy"},
            },
            "y": {"field": "spread", "type": "quantitative", "title": "standard deviation"},
            "color": {
                "field": "across",
                "type": "nominal",
                "title": "across",
                "scale": {"domain": ["images", "channels"], "range": [BLUE, GREY]},
            },
        },
    }
