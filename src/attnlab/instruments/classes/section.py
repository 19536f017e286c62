"""The part of a page about classes: how well each is known, and which are taken for which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attnlab.page.parts import Cell, Figure, Folded, Heading, Part, Section, Table
from attnlab.page.plot import Spec
from attnlab.results.record import StudyRecord

_TITLE = "Which classes does it know?"
_SHOWN = 40
"""Classes up to which a matrix is drawn; of more, the pairs that are mixed up most are listed."""
_PAIRS = 10

Confusion = Mapping[str, Any]
"""`classes`: their names; `confusion`: counts, true class × predicted class."""


def classes_section(record: StudyRecord) -> list[Section]:
    """One section where runs have stored their confusion; none elsewhere."""
    parts: list[Part | Folded] = []
    answer = ""
    for group in record.table.groups:
        by_row = {
            row.label: summed(found)
            for row in group.rows
            if (found := record.found(group, row.label, "classes"))
        }
        if not by_row:
            continue
        if len(record.table.groups) > 1:
            parts.append(Heading(record.name_of(group)))
        label, first = next(iter(by_row.items()))
        answer = answer or in_words(first, label)
        parts += [class_table(by_row), *confusion_parts(first, label)]
        parts += [
            Folded(f"Confusion of {other}", confusion_parts(found, other))
            for other, found in list(by_row.items())[1:]
        ]
    if not parts:
        return []
    lead = "Share of the test images of each class that is predicted right, all seeds together."
    to_do = "Look at images of the classes that are mixed up most before changing the network."
    return [Section(_TITLE, lead, parts, answer, to_do)]


def run_classes_section(found: Confusion | None) -> list[Section]:
    """The same for one run."""
    if not found:
        return []
    parts: list[Part | Folded] = [class_table({"this run": found})]
    parts += confusion_parts(found, "this run")
    to_do = "Look at images of the classes that are mixed up most before changing the network."
    return [Section(_TITLE, "", parts, in_words(found, "the network"), to_do)]


def summed(found: Sequence[Confusion]) -> Confusion:
    """Of several seeds; those with the classes of the first."""
    classes = found[0]["classes"]
    alike = [np.array(each["confusion"]) for each in found if each["classes"] == classes]
    return {"classes": classes, "confusion": sum(alike[1:], alike[0]).tolist()}


def shares(found: Confusion) -> list[float | None]:
    """Of each class the share that is predicted right; None where there is no image of it."""
    counts = np.array(found["confusion"], dtype=np.float64)
    totals = counts.sum(1)
    return [
        float(counts[n, n] / total) if total else None for n, total in enumerate(totals.tolist())
    ]


def mixed_up(found: Confusion) -> list[tuple[str, str, float, int]]:
    """(true, predicted, share of the true class, images) of pairs of classes, the worst first."""
    counts = np.array(found["confusion"], dtype=np.float64)
    totals = counts.sum(1)
    names = found["classes"]
    pairs = [
        (names[a], names[b], float(counts[a, b] / totals[a]), int(counts[a, b]))
        for a, b in zip(*np.nonzero(counts), strict=True)
        if a != b
    ]
    return sorted(pairs, key=lambda pair: -pair[2])


def in_words(found: Confusion, label: str) -> str:
    """The class that is known least, and what it is taken for."""
    known = {n: s for n, s in zip(found["classes"], shares(found), strict=True) if s is not None}
    if not known:
        return "There is no test image."
    worst = min(known, key=known.__getitem__)
    pair = next(((b, share) for a, b, share, _ in mixed_up(found) if a == worst), None)
    taken = "" if pair is None else f", most often taken for {pair[0]} ({100 * pair[1]:.0f} %)"
    return f"Of {label}, class {worst} is known least: {100 * known[worst]:.1f} % right{taken}."


def class_table(by_row: Mapping[str, Confusion]) -> Table:
    """A row per class, a column per module."""
    first = next(iter(by_row.values()))
    alike = {row: shares(f) for row, f in by_row.items() if f["classes"] == first["classes"]}
    totals = np.array(first["confusion"]).sum(1).tolist()
    lines = [
        [
            Cell(str(name)),
            Cell(str(totals[n]), order=totals[n]),
            *(
                Cell("—") if s[n] is None else Cell(f"{100 * (s[n] or 0):.1f}", order=s[n])
                for s in alike.values()
            ),
        ]
        for n, name in enumerate(first["classes"])
    ]
    return Table(["class", "images", *(f"{row} %" for row in alike)], lines)


def confusion_parts(found: Confusion, label: str) -> list[Part]:
    """The matrix as a picture, or the worst pairs where there are too many classes."""
    if len(found["classes"]) <= _SHOWN:
        caption = f"{label}: true class (row) × predicted class (column), share of the row."
        return [Figure(confusion_figure(found), caption, wide=True)]
    lines = [
        [Cell(true), Cell(predicted), Cell(f"{100 * share:.1f} %", order=share), Cell(str(number))]
        for true, predicted, share, number in mixed_up(found)[:_PAIRS]
    ]
    return [Table(["true", "predicted", "share", "images"], lines, label, names=2)]


def confusion_figure(found: Confusion) -> Spec:
    """Every field says its counts."""
    names = [str(name) for name in found["classes"]]
    counts = np.array(found["confusion"], dtype=np.float64)
    totals = np.maximum(counts.sum(1, keepdims=True), 1)
    values = [
        {
            "true": names[a],
            "predicted": names[b],
            "share": float(counts[a, b] / totals[a, 0]),
            "number": f"{100 * counts[a, b] / totals[a, 0]:.0f}" if counts[a, b] else "",
            "text": f"{names[a]} taken for {names[b]}: {int(counts[a, b])} of {int(totals[a, 0])}",
        }
        for a in range(len(names))
        for b in range(len(names))
    ]
    axis = {"domain": False, "ticks": False, "labelLimit": 110}
    step = 30 if len(names) <= 15 else 20
    y = {"field": "true", "type": "nominal", "sort": names, "title": "true class", "axis": axis}
    x = {
        **y,
        "axis": {**axis, "labelAngle": 0 if max(map(len, names)) < 4 else -90},
        "field": "predicted",
        "title": "predicted class",
    }
    colour = {
        "field": "share",
        "type": "quantitative",
        "title": "share of the true class",
        # Rare confusions are what one looks for: a root makes them visible.
        "scale": {"type": "sqrt", "scheme": "viridis", "domain": [0, 1]},
        "legend": {"orient": "top", "direction": "horizontal", "gradientLength": 150},
    }
    number = {
        "mark": {"type": "text", "fontSize": 10, "aria": False},
        "encoding": {
            "text": {"field": "number"},
            # Not a colour of the page: it lies on the colours of the map.
            "color": {"condition": {"test": "datum.share > 0.4", "value": "#111"}, "value": "#eee"},
        },
    }
    fields = {"mark": "rect", "encoding": {"color": colour, "description": {"field": "text"}}}
    return {
        "width": {"step": step},
        "height": {"step": step},
        "data": {"values": values},
        "encoding": {"x": x, "y": y},
        "layer": [fields, *([number] if len(names) <= 15 else [])],
    }
