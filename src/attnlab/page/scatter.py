"""Points with their names beside them, clear of each other."""

from __future__ import annotations

from collections.abc import Sequence

from attnlab.page.plot import BLUE, HALF, Spec


def scatter(
    values: Sequence[Spec],
    x: tuple[str, str],
    y: tuple[str, str | list[str]],
    title: str,
    shape: Spec | None = None,
) -> Spec:
    """`values` at the fields `x` and `y`, each (field, title, in lines if it is long); `text` of
    a value describes it, and `colour`, if there is one, is its mark's."""
    label = "row" if "row" in (values[0] if values else {}) else "module"
    mark = {"type": "point", "size": 70, "opacity": 0.9, "color": BLUE}
    encoding: Spec = {"description": {"field": "text"}}
    if values and "colour" in values[0]:
        encoding["color"] = {"field": "colour", "type": "nominal", "scale": None}
    if shape is not None:
        encoding["shape"] = shape
    near = {"zero": False, "nice": True, "padding": 14}
    wide = near | {"padding": 34}  # labels are wider than high
    names = [str(value[label]) for value in values]
    ends = [value[end] for value in values for end in ("low", "high") if end in value]
    sides = label_sides([(value[x[0]], value[y[0]]) for value in values], names, ends)
    if ends and 0 <= min(ends) < 0.5 * max(ends):
        # The padding would lead below zero, which no time is.
        wide = {"zero": True, "nice": True, "domainMax": 1.1 * max(ends)}
    placed = [{**value, "side": side} for value, side in zip(values, sides, strict=True)]
    labels = [_label_layer(side, label) for side in _SIDES if side in sides]
    return {
        "title": title or None,
        "width": HALF,
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
_LETTER, _LINE, _MARK = 6.0, 12.0, 10.0
"""Width of a letter and height of a line of 10 px, and the side of a mark, in pixels."""
_INSIDE = (150.0, 160.0)
"""Where points lie on a telephone, which has the least room: 235 × 240 less the padding of the
scales. What is clear of others there is clear on a broad page as well."""

_Box = tuple[float, float, float, float]
"""Left, top, right, bottom."""


def _label_layer(side: str, field: str) -> Spec:
    """The names of the points that have theirs on this side."""
    return {
        "transform": [{"filter": f"datum.side == '{side}'"}],
        "mark": _SIDES[side] | {"type": "text", "fontSize": 10, "aria": False},
        "encoding": {"text": {"field": field}},
    }


def label_sides(
    points: Sequence[tuple[float, float]],
    labels: Sequence[str] | None = None,
    ends: Sequence[float] = (),
) -> list[str]:
    """Return, for each point, the side on which its label is clear of points and earlier labels,
    or the one that covers least of them. `ends` are other places along x that the figure has room
    for, such as those of intervals."""
    if not points:
        return []
    lows = [min(v) for v in zip(*points, strict=True)]
    spans = [max(v) - min(v) or 1.0 for v in zip(*points, strict=True)]
    if ends:
        lows[0] = min(lows[0], *ends)
        spans[0] = max(*ends, *(x for x, _ in points)) - lows[0] or 1.0
    places = [
        (_INSIDE[0] * (x - lows[0]) / spans[0], -_INSIDE[1] * (y - lows[1]) / spans[1])
        for x, y in points
    ]
    marks = [_around(place, _MARK, _MARK) for place in places]
    taken: list[_Box] = []
    sides = []
    for number, place in enumerate(places):
        text = "module" if labels is None else labels[number]
        boxes = _label_boxes(place, _LETTER * len(text))
        others = marks[:number] + marks[number + 1 :] + taken
        covered = {side: sum(_shared(box, each) for each in others) for side, box in boxes.items()}
        side = min(covered, key=covered.__getitem__)  # the first of equals
        taken.append(boxes[side])
        sides.append(side)
    return sides


def _label_boxes(place: tuple[float, float], width: float) -> dict[str, _Box]:
    x, y = place
    return {
        "above": _around((x, y - 12), width, _LINE),
        "below": _around((x, y + 12), width, _LINE),
        "right": _around((x + 8 + width / 2, y), width, _LINE),
        "left": _around((x - 8 - width / 2, y), width, _LINE),
    }


def _around(place: tuple[float, float], width: float, height: float) -> _Box:
    x, y = place
    return (x - width / 2, y - height / 2, x + width / 2, y + height / 2)


def _shared(a: _Box, b: _Box) -> float:
    """The area that two boxes share."""
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    return width * height if width > 0 and height > 0 else 0.0
