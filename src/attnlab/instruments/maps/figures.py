"""Pictures of attention maps: Vega-Lite specifications of what `maps` found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from attnlab.page.plot import BESIDE, Spec
from attnlab.page.raster import raster_figure
from attnlab.surgery.words import MEAN_IMAGE_CHANGE

if TYPE_CHECKING:
    from attnlab.instruments.maps.result import LayerMaps

Which = Literal["spread", "change"]
_TITLES: dict[Which, str] = {
    "spread": "distance of an input's map from the mean",
    "change": MEAN_IMAGE_CHANGE,
}


def heads_figure(layers: Sequence[LayerMaps], which: Which) -> Spec:
    """One number of every head, layer × head."""
    values = [
        {
            "layer": number,
            "name": layer.name,
            "head": place,
            "value": head.spread if which == "spread" else head.change,
        }
        for number, layer in enumerate(layers, 1)
        for place, head in enumerate(layer.heads, 1)
    ]
    heads = max(len(layer.heads) for layer in layers)
    return {
        "width": max(40 * len(layers), BESIDE),
        "height": max(18 * heads, 60),
        "data": {"values": values},
        "mark": {"type": "rect"},
        "encoding": {
            "x": {"field": "layer", "type": "ordinal", "title": "layer", "axis": {"labelAngle": 0}},
            "y": {"field": "head", "type": "ordinal", "title": "head"},
            "color": {
                "field": "value",
                "type": "quantitative",
                "title": which,
                "scale": {"scheme": "viridis", "domainMin": 0},
            },
            "description": {"field": "name"},
        },
        "title": _TITLES[which],
    }


def mean_maps_figure(layer: LayerMaps) -> Spec:
    """The mean maps of the heads of a layer, side by side; each head has its own scale."""
    shown = []
    for head in layer.heads:
        values = np.array(head.picture, dtype=np.float64)
        shown += [values / max(values.max(), 1e-300), np.full((len(values), 1), np.nan)]
    mosaic = np.concatenate(shown[:-1], axis=1)
    spreads = ", ".join(f"{head.spread:.2g}" for head in layer.heads)
    number = len(layer.heads)
    side = min(max(BESIDE // number, 110), 170)
    return raster_figure(
        mosaic,
        description=f"Mean attention maps of {number} heads of {layer.name}, query × key; their "
        f"distances from single inputs' maps: {spreads}.",
        x=("key, head by head" if number > 1 else "key", 0, 1),
        y=("query", 0, layer.queries),
        legend="share",
        low=0.0,
        high=1.0,
        title=f"{layer.name}: spread {spreads}",
        # Two figures of few heads fill a row of the page.
        size=(min(side * number, 720), side),
    )
