"""Pictures of gates: plain data in, Vega-Lite specification out.

A site is one gate over images, as a dictionary: `label`, `name`, `channels`, `mean`,
`image_spread`, `channel_spread`, `sample` (image × channel) and `maps` (image × row × column).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attnlab.page.plot import BLUE, GREY, Spec
from attnlab.page.raster import raster_figure

Site = Mapping[str, Any]
MAPS = 6
"""How many images a picture of spatial maps shows, as the supplement does."""


FEWEST_IMAGES = 8
"""Different images below which no gate is called constant: one image, or copies of one, prove
nothing."""


def too_few_images(different: int) -> str:
    """Why gates seen on this many different images are not called constant; empty where they are
    enough."""
    if different >= FEWEST_IMAGES:
        return ""
    images = "different image was" if different == 1 else "different images were"
    return (
        f"Only {different} {images} seen: with fewer than {FEWEST_IMAGES} it cannot be said "
        f"whether a gate is the same for every image."
    )


def different_images(found: Mapping[str, Any]) -> int:
    """On how many different images a run's gates were measured; enough where a run was measured
    before they were counted."""
    number: int = found.get("different", FEWEST_IMAGES)
    return number


def stripe_ratio(site: Site) -> float | None:
    """Spread across images relative to spread across channels; 0 is a pure stripe. None where the
    channels do not differ either, so that there is no stripe to see."""
    across: float = site["channel_spread"]
    return site["image_spread"] / across if across > 1e-9 else None


def stripes_in_words(ratios: Sequence[float | None], different: int) -> str:
    """One line: how far gates with such ratios on this many different images are from constant."""
    if few := too_few_images(different):
        return few
    known = sorted(ratio for ratio in ratios if ratio is not None)
    if not known:
        return (
            "Neither images nor channels differ at any gate: there is no stripe to see, as in "
            "a network whose gates were not trained."
        )
    striped = sum(ratio < 0.5 for ratio in known)
    return (
        f"At {striped} of {len(known)} gates the spread across images is less than half of "
        f"the spread across channels (median ratio {known[len(known) // 2]:.2g})."
    )


def stripe_figure(values: np.ndarray, title: str, description: str) -> Spec:
    """Gates, image × channel: vertical stripes mean that images hardly differ (Figs. 17–23)."""
    images, channels = values.shape
    return raster_figure(
        values,
        description=description,
        x=("channel", 0, channels),
        y=("image" if images > 1 else "every image", 0, images),
        legend="gate",
        title=title,
        size=(200, 145),
    )


def gates_figure(site: Site) -> Spec:
    """The sample of a site."""
    values, found = np.array(site["sample"]), stripe_ratio(site)
    ratio = "undefined" if found is None else f"{found:.2g}"
    return stripe_figure(
        values,
        f"block {site['label']}, ratio {ratio}",
        f"Gate {site['label']} ({site['name']}) of {values.shape[0]} images × {values.shape[1]} of "
        f"{site['channels']} channels, from {values.min():.3g} to {values.max():.3g}; mean "
        f"{site['mean']:.3g}, spread across images {site['image_spread']:.2g}, across channels "
        f"{site['channel_spread']:.2g}, ratio {ratio}",
    )


def maps_figure(site: Site) -> Spec:
    """Spatial attention of a few images side by side (Fig. 24)."""
    maps = [np.array(each) for each in site["maps"][:MAPS]]
    gap = np.full((maps[0].shape[0], 1), np.nan)
    parts = [part for each in maps for part in (each, gap)][:-1]
    row = np.concatenate(parts, axis=1)
    low, high = np.nanmin(row), np.nanmax(row)
    return raster_figure(
        row,
        description=(
            f"Spatial attention at {site['label']} ({site['name']}) of {len(maps)} images, from "
            f"{low:.3g} to {high:.3g}"
        ),
        x=("images side by side", 0, row.shape[1]),
        y=("row", 0, row.shape[0]),
        legend="gate",
        title=f"block {site['label']}, spatial maps",
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


def spread_figure(sites: Sequence[Site]) -> Spec:
    """Spread of every gate across images and across channels."""
    rows = [
        {"gate": f"{number}. {site['label']}", "across": across, "spread": site[f"{key}_spread"]}
        for number, site in enumerate(sites, 1)
        for across, key in (("images", "image"), ("channels", "channel"))
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
