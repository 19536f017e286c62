"""Dense pictures: a grid of values as one small image with axes, instead of a mark per value."""

from __future__ import annotations

import base64
import io

import numpy as np

from attnlab.page.plot import Spec

# Viridis at nine even places; between them colours are mixed.
_VIRIDIS = np.array(
    [
        (68, 1, 84),
        (71, 45, 123),
        (59, 82, 139),
        (44, 114, 142),
        (33, 145, 140),
        (40, 174, 128),
        (94, 201, 98),
        (173, 220, 48),
        (253, 231, 37),
    ],
    dtype=np.float64,
)


def viridis(values: np.ndarray) -> np.ndarray:
    """Values in [0, 1] → colours (..., 3) as bytes."""
    place = np.clip(values, 0, 1) * (len(_VIRIDIS) - 1)
    low = np.minimum(place.astype(int), len(_VIRIDIS) - 2)
    share = (place - low)[..., None]
    mixed = _VIRIDIS[low] * (1 - share) + _VIRIDIS[low + 1] * share
    return np.asarray(mixed.round().astype(np.uint8))


def raster_uri(values: np.ndarray, low: float, high: float) -> str:
    """The grid (rows, columns) as a PNG inside a URI; `low` is dark, `high` bright, NaN grey."""
    from PIL import Image

    scaled = (np.asarray(values, dtype=np.float64) - low) / max(high - low, 1e-300)
    pixels = viridis(np.nan_to_num(scaled, nan=0.0, posinf=1.0, neginf=0.0))
    pixels[np.isnan(scaled)] = 160
    buffer = io.BytesIO()
    palette = Image.fromarray(pixels).quantize(64, dither=Image.Dither.NONE)
    palette.save(buffer, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def raster_figure(
    values: np.ndarray,
    *,
    description: str,
    x: tuple[str, float, float],
    y: tuple[str, float, float],
    legend: str,
    low: float | None = None,
    high: float | None = None,
    title: str = "",
    size: tuple[int, int] = (230, 170),
    y_from_bottom: bool = False,
    has_y_axis: bool = True,
    has_legend: bool = True,
) -> Spec:
    """A grid (rows, columns) with axes `(title, start, end)` and a colour legend.

    Row 0 is on top unless `y_from_bottom`. `description` is what a reader who sees no picture gets.
    Of several side by side the first has the axis of all, and the last the legend.
    """
    grid = np.asarray(values, dtype=np.float64)
    low, high = _ends(grid, low, high)
    url = raster_uri(grid[::-1] if y_from_bottom else grid, low, high)
    picture = {"url": url, "x": x[1], "y": y[1], "value": low, "description": description}
    axes: Spec = {
        # Invisible: makes the axes and the legend, which images do not.
        "mark": {"type": "point", "opacity": 0, "aria": False},
        "encoding": {
            "x": _scale("x", x),
            "y": _scale("y", y, reverse=not y_from_bottom, is_shown=has_y_axis),
            "color": _colour(legend, low, high, size[1] if has_legend else None),
        },
    }
    spec: Spec = {
        "width": size[0],
        "height": size[1],
        "data": {"values": [picture, {**picture, "value": high, "url": None}]},
        "layer": [_image_layer(*size), axes],
    }
    return spec | ({"title": title} if title else {})


def _ends(grid: np.ndarray, low: float | None, high: float | None) -> tuple[float, float]:
    """Return where the colours begin and end: as given, else at the least and the largest value."""
    finite = grid[np.isfinite(grid)]
    least, largest = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    return least if low is None else low, largest if high is None else high


def _image_layer(width: int, height: int) -> Spec:
    sizes = {"width": width, "height": height}
    return {
        "transform": [{"filter": "datum.url != null"}],
        "mark": {"type": "image", "aspect": False, "smooth": False, **sizes},
        "encoding": {
            "x": {"value": width / 2},
            "y": {"value": height / 2},
            "url": {"field": "url"},
            "description": {"field": "description"},
        },
    }


def _scale(
    field: str,
    ends: tuple[str, float, float],
    reverse: bool | None = None,
    *,
    is_shown: bool = True,
) -> Spec:
    scale: Spec = {"domain": [ends[1], ends[2]], "nice": False}
    if reverse is not None:
        scale["reverse"] = reverse
    return {
        "field": field,
        "type": "quantitative",
        "title": ends[0] if is_shown else None,
        "scale": scale,
        "axis": _axis(ends) | ({} if is_shown else {"labels": False, "ticks": False}),
    }


def _colour(legend: str, low: float, high: float, height: int | None) -> Spec:
    return {
        "field": "value",
        "type": "quantitative",
        "title": legend,
        "scale": {"scheme": "viridis", "domain": [low, high]},
        "legend": None if height is None else {"gradientLength": height - 30, "tickCount": 3},
    }


def _axis(ends: tuple[str, float, float]) -> Spec:
    """Whole numbers where it counts something; none along a single row."""
    whole = all(float(end).is_integer() for end in ends[1:])
    if whole and ends[2] - ends[1] == 1:
        return {"grid": False, "labels": False, "ticks": False}
    return {"grid": False, "tickCount": 4, **({"tickMinStep": 1} if whole else {})}
