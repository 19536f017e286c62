"""The part of a study's page that its task shows: values by name, curves, and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from attnlab.page.parts import (
    Cell,
    Figure,
    Folded,
    Heading,
    Legend,
    Part,
    Row,
    Section,
    Table,
    Text,
    Thumbnail,
    ThumbnailGrid,
)
from attnlab.page.plot import Spec, swatch
from attnlab.results.details import (
    Breakdown,
    Curves,
    DetailsResult,
    Mark,
    MarkedPicture,
    MaskPicture,
)
from attnlab.results.metric import Metric
from attnlab.results.record import StudyRecord
from attnlab.results.table import Group

SIDE = 150
"""The least number of pixels of the longer side of a picture on a page."""


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
    # A row has the colour that it has on all figures; a rim makes it seen on any photograph.
    rim = {**mark, "stroke": TRUE, "strokeWidth": 3.2, "aria": False}
    dashed = {**mark, "strokeDash": [3, 2]}
    return {
        "data": {"values": values},
        "encoding": {
            "x": {**x, "field": "left"},
            "x2": {"field": "right"},
            "y": {**y, "field": "top"},
            "y2": {"field": "bottom"},
            "description": {"field": "text"},
        },
        "layer": [{"mark": dashed}] if layer.dashed else [{"mark": rim}, {"mark": mark}],
    }


TRUE = "#ffffff"


def details_sections(record: StudyRecord) -> list[Section]:
    """A section where the task shows something; none for others."""
    parts: list[Part | Folded] = []
    for group in record.table.groups:
        found = _alike(
            {row.label: record.measured(group, row.label, DetailsResult) for row in group.rows}
        )
        if not found:
            continue
        if len(record.table.groups) > 1:
            parts.append(Heading(record.name_of(group)))
        parts += _breakdowns(found)
        shown = _compared(group, found, record.metric)
        colours = {label: record.colours[label] for label in shown}
        parts += _curves(shown, colours)
        parts += _pictures(shown, colours)
        parts += _masks(shown)
    if not parts:
        return []
    lead = (
        "The result taken apart: mean over seeds, ± the standard deviation over them. Curves and "
        "pictures are of the plain network and of the row with the best mean."
    )
    return [Section("In detail", lead, parts)]


def _alike(found: dict[str, list[DetailsResult]]) -> dict[str, list[DetailsResult]]:
    """Return those that show the same as the first; another task's have no place in one table."""

    def shown(details: DetailsResult) -> list[str]:
        return [each.title for each in details.breakdowns] + [c.title for c in details.curves]

    first = next((each for runs in found.values() for each in runs), None)
    if first is None:
        return {}
    alike = {label: [e for e in runs if shown(e) == shown(first)] for label, runs in found.items()}
    return {label: runs for label, runs in alike.items() if runs}


def _compared(
    group: Group, found: dict[str, list[DetailsResult]], metric: Metric
) -> dict[str, list[DetailsResult]]:
    """The plain row, and the one with the best mean of all others."""
    plain = [] if group.plain is None else [group.plain.label]
    means = {
        row.label: row.comparison.difference.mean
        for row in group.rows
        if row.comparison is not None and row.label in found
    }
    best = sorted(means, key=means.__getitem__, reverse=metric.better == "higher")
    chosen = [*plain, *best[:1]] or list(found)[:1]
    return {label: found[label] for label in chosen if label in found}


def _breakdowns(found: dict[str, list[DetailsResult]]) -> list[Part | Folded]:
    first = next(iter(found.values()))[0]
    return [
        _table(
            breakdown,
            {label: [each.breakdowns[n] for each in runs] for label, runs in found.items()},
        )
        for n, breakdown in enumerate(first.breakdowns)
    ]


def _table(shape: Breakdown, rows: dict[str, list[Breakdown]]) -> Table:
    unit = f" {shape.unit}" if shape.unit else ""
    return Table(
        ["", *(f"{name}{unit}" for name in shape.values)],
        [
            [
                Cell(label),
                *(_cell([run.values.get(name) for run in runs], shape) for name in shape.values),
            ]
            for label, runs in rows.items()
        ],
        shape.title,
    )


def _cell(values: Sequence[float | None], shape: Breakdown) -> Cell:
    known = [value for value in values if value is not None]
    if not known:
        return Cell("—")
    mean = fmean(known)
    spread = f"± {stdev(known):.{shape.digits}f}" if len(known) > 1 else ""
    return Cell(f"{mean:.{shape.digits}f}", spread, mean)


def _curves(shown: dict[str, list[DetailsResult]], colours: dict[str, str]) -> list[Part | Folded]:
    first = next(iter(shown.values()))[0]
    parts: list[Part | Folded] = []
    for n, curves in enumerate(first.curves):
        by_row = {label: [each.curves[n] for each in runs] for label, runs in shown.items()}
        figures = [Figure(_curve_figure(curves, name, by_row, colours)) for name in curves.lines]
        parts += [Heading(curves.title), _legend(colours), Row(figures)]
    return parts


def _curve_figure(
    shape: Curves, name: str, by_row: dict[str, list[Curves]], colours: dict[str, str]
) -> Spec:
    values = []
    for label, runs in by_row.items():
        lines = [run.lines[name] for run in runs if name in run.lines and run.x == shape.x]
        if not lines:
            continue
        values += [
            {"row": label, "x": x, "y": fmean(column)}
            for x, column in zip(shape.x, zip(*lines, strict=True), strict=True)
        ]
    return {
        "title": name,
        "width": 170,
        "height": 130,
        "data": {"values": values},
        "mark": {"type": "line", "strokeWidth": 2},
        "encoding": {
            "x": {"field": "x", "type": "quantitative", "title": shape.x_title},
            "y": {
                "field": "y",
                "type": "quantitative",
                "title": shape.y_title,
                "scale": {"domain": [0, 1]},
            },
            "color": {
                "field": "row",
                "type": "nominal",
                "legend": None,
                "scale": {"domain": list(colours), "range": list(colours.values())},
            },
        },
    }


def _pictures(
    shown: dict[str, list[DetailsResult]], colours: dict[str, str]
) -> list[Part | Folded]:
    strips = {label: runs[0].pictures for label, runs in shown.items()}
    number = min(len(strip) for strip in strips.values())
    if not number:
        return []
    figures = [
        Figure(_strip_figure({label: strip[n] for label, strip in strips.items()}, colours))
        for n in range(number)
    ]
    text = "Test images of the first seed; boxes with a score of at least one half."
    unsure = [
        label for label, strip in strips.items() if not any(each.found for each in strip[:number])
    ]
    if unsure:
        text += f" {' and '.join(unsure)} found none in these images."
    legend = _legend(colours, ("dash", "true (white in the pictures)"))
    return [Heading("Some images"), Text(text, quiet=True), legend, Row(figures)]


def _masks(shown: dict[str, list[DetailsResult]]) -> list[Part | Folded]:
    strips = {label: runs[0].masks for label, runs in shown.items()}
    number = min(len(strip) for strip in strips.values())
    if not number:
        return []
    columns = ["image", "true"]
    for label in strips:
        columns += [label, f"{label}, errors"]
    rows = []
    for place in range(number):
        first = next(iter(strips.values()))[place]
        row = [_mask(first, first.image, "test image"), _mask(first, first.true, "true classes")]
        for label, strip in strips.items():
            each = strip[place]
            text = f"{label}: {100 * each.wrong:.1f} % of the pixels wrong"
            row += [_mask(each, each.found, f"{label}, classes"), _mask(each, each.errors, text)]
        rows.append(row)
    text = "Test images of the first seed. A colour is a class; red pixels have another class."
    return [Heading("Some images"), Text(text, quiet=True), ThumbnailGrid(columns, rows)]


def _mask(picture: MaskPicture, png: str, text: str) -> Thumbnail:
    zoom = max(1.0, SIDE / max(picture.width, picture.height))
    sides = round(zoom * picture.width), round(zoom * picture.height)
    return Thumbnail(f"data:image/png;base64,{png}", text, *sides)


def _strip_figure(pictures: dict[str, MarkedPicture], colours: dict[str, str]) -> Spec:
    first = next(iter(pictures.values()))
    layers = [_layer("true", TRUE, first.true, dashed=True)]
    layers += [_layer(label, colours[label], each.found) for label, each in pictures.items()]
    return picture_figure(first.png, (first.width, first.height), layers)


def _legend(colours: dict[str, str], *others: tuple[str, str]) -> Legend:
    return Legend([*((swatch(colour), label) for label, colour in colours.items()), *others])


def _layer(name: str, colour: str, marks: Sequence[Mark], dashed: bool = False) -> Layer:
    boxes = [(m.left, m.top, m.right, m.bottom, m.text) for m in marks]
    return Layer(name, colour, boxes, dashed)
