"""Photographs with boxes drawn on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from attnlab.page.plot import Spec

SIDE = 150
"""The longer side of a picture on a page is at least so many pixels."""


@dataclass(frozen=True)
class Layer:
    """Boxes of one kind: (left, top, right, bottom, text) each, in pixels."""

    name: str
    colour: str
    boxes: Sequence[tuple[float, float, float, float, str]]
    dashed: bool = False


def picture_figure(
    png: str, size: tuple[int, int], layers: Sequence[Layer], title: str = ""
) -> Spec:
    """A PNG in base64 under boxes; what a reader who sees no picture gets is each box's text."""
    width, height = size
    zoom = max(1.0, SIDE / max(size))
    x: Spec = {"type": "quantitative", "axis": None, "scale": {"domain": [0, width]}}
    y: Spec = {**x, "scale": {"domain": [height, 0]}}
    image = {"url": f"data:image/png;base64,{png}", "x": width / 2, "y": height / 2}
    sides = {"width": zoom * width, "height": zoom * height}
    photograph: Spec = {
        "data": {"values": [image]},
        "mark": {"type": "image", **sides, "aspect": False},
        "encoding": {
            "url": {"field": "url"},
            "x": {**x, "field": "x"},
            "y": {**y, "field": "y"},
            "description": {"value": "a test image"},
        },
    }
    boxes = [_boxes(layer, x, y) for layer in layers]
    return {"title": title or None, **sides, "layer": [photograph, *boxes]}


def _boxes(layer: Layer, x: Spec, y: Spec) -> Spec:
    values = [
        {
            "left": left,
            "top": top,
            "right": right,
            "bottom": bottom,
            "text": f"{layer.name}: {text}, {left:.0f} to {right:.0f} from the left, {top:.0f} "
            f"to {bottom:.0f} from the top",
        }
        for left, top, right, bottom, text in layer.boxes
    ]
    mark = {"type": "rect", "filled": False, "stroke": layer.colour, "strokeWidth": 1.6}
    return {
        "data": {"values": values},
        "mark": {**mark, **({"strokeDash": [3, 2]} if layer.dashed else {})},
        "encoding": {
            "x": {**x, "field": "left"},
            "x2": {"field": "right"},
            "y": {**y, "field": "top"},
            "y2": {"field": "bottom"},
            "description": {"field": "text"},
        },
    }
