"""The part of a fold's page about gates that were made constant under a budget."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attnlab.page.parts import Cell, Figure, Section, Table, number_cell
from attnlab.page.plot import BLUE, GREY, ORANGE, Spec

WORDS = {
    "output": "total change of the output",
    "answers": "share of answers that change",
    "loss": "rise of the loss",
    "accuracy": "fall of the accuracy",
}
"""What a cost is; a file says its name."""


def budget_section(receipt: Mapping[str, Any]) -> Section:
    """What it costs to make gates constant, one after the other; `receipt` has a curve."""
    curve = receipt["curve"]
    points, budget = curve["points"], curve["budget"]
    gone = sum(bool(row["into"]) for row in receipt["rows"])
    lead = (
        f"Gates in the order in which they are made constant. Predicted on the {curve['choosing']} "
        f"images that chose, measured on {curve['held_out']} that did not. The budget was "
        f"**{budget}**, and {gone} of {len(receipt['rows'])} gates went: predicted "
        f"{receipt['predicted']:.4f}, measured **{receipt['measured']:.4f}**."
    )
    repair = receipt.get("repair")
    if repair is not None:
        lead += (
            f" Before the repair ({repair['epochs']} epochs in which the original teaches the "
            f"folded network) it was {receipt['measured_before_repair']:.4f}."
        )
    if receipt["accuracy_before"] is not None:
        before, after = receipt["accuracy_before"], receipt["accuracy_after"]
        fell, error = 100 * (after - before), 196 * receipt["accuracy_error"]
        lead += (
            f" Accuracy on the images held out: {before:.2%} before, **{after:.2%}** after "
            f"({fell:+.2f} ± {error:.2f} points, 95 %, image by image)."
        )
    return Section("What does it cost?", lead, [Figure(curve_figure(curve)), _table(points)])


def _table(points: list[Mapping[str, Any]]) -> Table:
    accuracy = any(point["accuracy"] is not None for point in points)
    columns = ["gate made constant", "how many", "predicted", "up to (95 %)", "held out"]
    rows = [
        [
            Cell(point["site"]),
            number_cell(number, "{:d}"),
            *(number_cell(point[name], "{:.4f}") for name in ("predicted", "bound", "measured")),
            *([number_cell(point["accuracy"], "{:.2%}")] if accuracy else []),
        ]
        for number, point in enumerate(points, 1)
    ]
    return Table(columns + (["accuracy held out"] if accuracy else []), rows, names=1)


def curve_figure(curve: Mapping[str, Any]) -> Spec:
    """Predicted with its bound, and measured, against the number of gates that are constant."""
    names = {"predicted": "predicted", "measured": "measured, held out"}
    values = [
        {
            "gates": number,
            "cost": point[name],
            "bound": point["bound"],
            "kind": words,
            "text": f"{number} gates, {words}: {point[name]:.4f}",
        }
        for number, point in enumerate(curve["points"], 1)
        for name, words in names.items()
    ]
    x = {
        "field": "gates",
        "type": "quantitative",
        "title": "gates made constant",
        "axis": {"tickMinStep": 1, "grid": False},
        "scale": {"domain": [0, len(curve["points"])]},
    }
    y = {"field": "cost", "type": "quantitative", "title": WORDS[curve["cost"]]}
    colour = {
        "field": "kind",
        "type": "nominal",
        "title": None,
        "scale": {"domain": list(names.values()), "range": [BLUE, ORANGE]},
        "legend": {"orient": "top"},
    }
    layers: list[Spec] = [
        {
            "transform": [{"filter": "datum.kind == 'predicted'"}],
            "mark": {"type": "area", "opacity": 0.15, "color": BLUE, "aria": False},
            "encoding": {"x": x, "y": y, "y2": {"field": "bound"}},
        },
        {
            "mark": {"type": "line", "point": True},
            "encoding": {"x": x, "y": y, "color": colour, "description": {"field": "text"}},
        },
    ]
    if isinstance(curve["budget"], int | float):
        layers.append(
            {
                "data": {"values": [{"cost": curve["budget"]}]},
                "mark": {"type": "rule", "strokeDash": [4, 3], "color": GREY, "aria": False},
                "encoding": {"y": y},
            }
        )
    return {"width": 420, "height": 220, "data": {"values": values}, "layer": layers}
