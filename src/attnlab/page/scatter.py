"""Points with their names beside them, clear of each other."""

from __future__ import annotations

from collections.abc import Sequence

from attnlab.page.plot import BLUE, Spec


def scatter(
    values: Sequence[Spec],
    x: tuple[str, str],
    y: tuple[str, str | list[str]],
    title: str,
    shape: Spec | None = None,
) -> Spec:
    """`values` at the fields `x` and `y`, each (field, title, in lines if it is long); `text` of
    a value describes it."""
    label = "row" if "row" in (values[0] if values else {}) else "module"
    mark = {"type": "point", "size": 70, "opacity": 0.9, "color": BLUE}
    encoding: Spec = {"description": {"field": "text"}}
    if shape is not None:
        encoding["shape"] = shape
    near = {"zero": False, "nice": True, "padding": 14}
    wide = near | {"padding": 34}  # labels are wider than high
    sides = label_sides([(value[x[0]], value[y[0]]) for value in values])
    placed = [{**value, "side": side} for value, side in zip(values, sides, strict=True)]
    labels: list[Spec] = [
        {
            "transform": [{"filter": f"datum.side == '{side}'"}],
            "mark": where | {"type": "text", "fontSize": 10, "aria": False},
            "encoding": {"text": {"field": label}},
        }
        for side, where in _SIDES.items()
        if side in sides
    ]
    return {
        "title": title or None,
        "width": 400,
        "height": 240,
        "data": {"values": placed},
        "encoding": {
            "x": {"field": x[0], "type": "quantitative", "title": x[1], "scale": wide},
            "y": {"field": y[0], "type": "quantitative", "title": y[1], "scale": near},
        },
        "layer": [{"mark": mark, "encoding": encoding}, *labels],
    }


_SIDES: dict[str, Spec] = {
    "above": {"dy": -10},
    "below": {"dy": 12},
    "right": {"dx": 8, "align": "left"},
    "left": {"dx": -8, "align": "right"},
}
_OFFSETS = {"above": (0.0, 0.05), "below": (0.0, -0.06), "right": (0.1, 0.0), "left": (-0.1, 0.0)}


def label_sides(points: Sequence[tuple[float, float]]) -> list[str]:
    """For each point the side on which its label is clear of points and earlier labels, or the one
    with most room."""
    if not points:
        return []
    spans = [max(v) - min(v) or 1.0 for v in zip(*points, strict=True)]
    scaled = [(x / spans[0], y / spans[1]) for x, y in points]
    taken: list[tuple[float, float]] = []
    sides = []
    for number, (x, y) in enumerate(scaled):
        others = scaled[:number] + scaled[number + 1 :] + taken
        places = {side: (x + dx, y + dy) for side, (dx, dy) in _OFFSETS.items()}
        room = {side: _room(place, others) for side, place in places.items()}
        side = next(
            (side for side, clear in room.items() if clear > 1), max(room, key=room.__getitem__)
        )
        taken.append(places[side])
        sides.append(side)
    return sides


def _room(place: tuple[float, float], others: Sequence[tuple[float, float]]) -> float:
    """Distance to the nearest of `others` in sizes of a label, which is wider than high."""
    distances = [max(abs(place[0] - a) / 0.13, abs(place[1] - b) / 0.055) for a, b in others]
    return min(distances, default=2.0)
