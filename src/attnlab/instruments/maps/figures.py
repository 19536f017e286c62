"""Pictures of attention maps: plain data in, Vega-Lite specification out.

A layer is a dictionary: `name`, `queries`, `keys` and `heads`, each with `spread`, `structure`,
`change` and `picture` (query × key).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attnlab.page.plot import Spec
from attnlab.page.raster import raster_figure
from attnlab.surgery.change import MEAN_IMAGE_CHANGE

Layer = Mapping[str, Any]
ALIKE = 0.1
"""Below this distance from its mean a map hardly depends on the input."""
_TITLES = {
    "spread": "distance of an input's map from the mean",
    "change": MEAN_IMAGE_CHANGE,
}


def maps_in_words(result: Mapping[str, Any]) -> str:
    """One line: how much the maps depend on the input, and what their means would do."""
    heads = [head for layer in result["layers"] for head in layer["heads"]]
    alike = sum(head["spread"] < ALIKE for head in heads)
    spreads = sorted(head["spread"] for head in heads)
    largest = max(head["change"] for head in heads)
    words = (
        f"{alike} of {len(heads)} heads attend nearly alike whatever the input (distance from "
        f"their mean map below {ALIKE:g}; median {spreads[len(spreads) // 2]:.2g}). With its mean "
        f"map, a single head changes the output by at most {100 * largest:.2g} %, all heads "
        f"together by {100 * result['change']:.2g} %"
    )
    if result["agreement"] is not None:
        words += f", and {100 * result['agreement']:.0f} % of the answers stay"
    return f"{words}."


def heads_figure(layers: Sequence[Layer], which: str) -> Spec:
    """One number of every head, layer × head."""
    values = [
        {"layer": number + 1, "name": layer["name"], "head": place + 1, "value": head[which]}
        for number, layer in enumerate(layers)
        for place, head in enumerate(layer["heads"])
    ]
    heads = max(value["head"] for value in values)
    return {
        "width": max(40 * len(layers), 120),
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


def mean_maps_figure(layer: Layer) -> Spec:
    """The mean maps of the heads of a layer, side by side; each head has its own scale."""
    shown = []
    for head in layer["heads"]:
        values = np.array(head["picture"], dtype=np.float64)
        shown += [values / max(values.max(), 1e-300), np.full((len(values), 1), np.nan)]
    mosaic = np.concatenate(shown[:-1], axis=1)
    spreads = ", ".join(f"{head['spread']:.2f}" for head in layer["heads"])
    number = len(layer["heads"])
    return raster_figure(
        mosaic,
        description=f"Mean attention maps of {number} heads of {layer['name']}, query × key; their "
        f"distances from single inputs' maps: {spreads}.",
        x=("key, head by head" if number > 1 else "key", 0, 1),
        y=("query", 0, layer["queries"]),
        legend="of the largest",
        low=0.0,
        high=1.0,
        title=f"{layer['name']}: spread {spreads}",
        size=(min(110 * number, 720), 110),
    )
